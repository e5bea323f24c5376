// What scrolls sideways must be reachable by keyboard. The theme sees to code, this to the rest.
const wide = ".bd-article table, .bd-article .math, .bd-article mjx-container, .bd-article .cell_output";

function addTabStops() {
  for (const element of document.querySelectorAll(wide)) {
    if (element.scrollWidth > element.clientWidth) element.tabIndex = 0;
  }
}

window.addEventListener("load", async () => {
  await window.MathJax?.startup?.promise;
  addTabStops();
  window.addEventListener("resize", addTabStops);
});

// Folded cells are all called "Toggle hidden content"; without that, each is called what it shows.
window.addEventListener("DOMContentLoaded", () => {
  for (const summary of document.querySelectorAll("details.hide > summary[aria-label]")) {
    summary.removeAttribute("aria-label");
  }
});
