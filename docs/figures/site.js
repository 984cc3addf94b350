// Tables that are wider than the page scroll; the keyboard reaches those that do.
document$.subscribe(() => {
  const reach = () => {
    for (const wide of document.querySelectorAll(".md-typeset__scrollwrap")) {
      if (wide.scrollWidth > wide.clientWidth) wide.tabIndex = 0;
      else wide.removeAttribute("tabindex");
    }
  };
  reach();
  addEventListener("resize", reach);
});
