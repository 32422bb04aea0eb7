// Filters of the lists of tensors, and folds that open where a link leads. Without it the page is complete.
"use strict";

function matches(row, state, pattern) {
  return (!state || row.dataset.state === state) && pattern.test(row.textContent);
}

function asPattern(text) {
  const quoted = text.replace(/[.+?^${}()|[\]\\]/g, "\\$&").replace(/\*/g, ".*");
  return new RegExp(quoted, "i");
}

function filter(form) {
  const state = form.elements.state.value;
  const pattern = asPattern(form.elements.pattern.value.trim());
  let shown = 0;
  for (const group of form.parentElement.querySelectorAll(".group")) {
    let here = 0;
    for (const row of group.querySelectorAll("tbody tr")) {
      row.hidden = !matches(row, state, pattern);
      here += row.hidden ? 0 : 1;
    }
    group.hidden = here === 0;
    if (here && (state || form.elements.pattern.value)) group.open = true;
    shown += here;
  }
  form.querySelector("output").textContent = shown + (shown === 1 ? " tensor" : " tensors");
}

for (const form of document.querySelectorAll("form.filter")) {
  form.hidden = false;
  form.addEventListener("input", () => filter(form));
  form.addEventListener("submit", (event) => event.preventDefault());
}

function openTarget() {
  const target = location.hash && document.getElementById(decodeURIComponent(location.hash.slice(1)));
  if (target && target.tagName === "DETAILS") {
    target.open = true;
    target.scrollIntoView();
  }
}

addEventListener("hashchange", openTarget);
openTarget();
