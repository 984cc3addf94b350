// One stream of events behind a button: it starts, it stops, and it says how it ended.

import { stream } from "/static/api.js";
import { $, aborted } from "/static/session.js";

// `id` is the button's, and `id`-status where its progress is shown.
export function streamedJob(id, label) {
  let job = null;
  const say = (text) => { $(`${id}-status`).textContent = text; };
  return {
    say,
    stop: () => job?.abort(),
    running: () => job !== null,
    // Ends with `lost` unless an event has said otherwise: `on` gives the last words, if an event has any.
    async run(path, body, lost, on) {
      const mine = new AbortController();
      job = mine;
      let end = lost;
      $(id).textContent = "Stop";
      try {
        await stream(path, body, mine.signal, (event) => {
          end = on(event) ?? end;
          if (event.event === "queued") say("Waiting for a free worker …");
          if (event.event === "refused") end = event.problem.message;
        });
      } catch (error) {
        end = aborted(error) ? "Stopped." : error.message;
      }
      if (job === mine) job = null;
      $(id).textContent = label;
      say(end);
    },
  };
}
