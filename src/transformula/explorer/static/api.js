// Requests to the server: plain JSON, and streams of events that end when they are aborted.

export class Refused extends Error {
  constructor(problem, status) {
    super(problem.message);
    this.problem = problem;
    this.status = status;
  }
}

async function refusal(response) {
  let problem = { field: "", message: `the server answered ${response.status}`, kind: "fault" };
  try {
    problem = { ...problem, ...(await response.json()) };
  } catch { /* not JSON: the plain sentence has to do */ }
  return new Refused(problem, response.status);
}

// fetch that tells "nobody answers" in our words.
async function reach(path, given) {
  try {
    return await fetch(path, given);
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Refused({ field: "", message: "the server does not answer: is transformula explore still running?", kind: "fault" }, 0);
  }
}

const pause = (seconds, signal) => new Promise((resolve, reject) => {
  const timer = setTimeout(resolve, 1000 * seconds);
  signal?.addEventListener("abort", () => { clearTimeout(timer); reject(signal.reason); }, { once: true });
});

async function send(path, body, signal, onBusy) {
  for (let attempt = 0; ; attempt += 1) {
    const response = await reach(path, {
      method: "POST", headers: { "content-type": "application/json" }, body: JSON.stringify(body), signal,
    });
    if (response.ok) return response;
    if (response.status !== 429 || attempt >= 10) throw await refusal(response);
    onBusy?.();
    await pause(Number(response.headers.get("retry-after")) || 2, signal);
  }
}

export async function get(path) {
  const response = await reach(path);
  if (!response.ok) throw await refusal(response);
  return response.json();
}

export async function post(path, body, signal) {
  return (await send(path, body, signal)).json();
}

export async function stream(path, body, signal, onEvent) {
  const response = await send(path, body, signal, () => onEvent({ event: "queued" }));
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let text = "";
  for (;;) {
    const { value, done } = await reader.read().catch((error) => {
      if (error.name === "AbortError") throw error;
      return { done: true }; // the connection broke: whoever waits for the last event will see that it is missing
    });
    if (done) return;
    text += value;
    const events = text.split("\n\n");
    text = events.pop();
    for (const event of events) onEvent(JSON.parse(event.replace(/^data: /, "")));
  }
}
