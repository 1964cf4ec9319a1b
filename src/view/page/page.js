"use strict";
const box = document.getElementById("filter");
const found = document.getElementById("found");
const cards = [...document.querySelectorAll(".card")];
const trees = [...document.querySelectorAll(".tree")];
const folds = [...document.querySelectorAll(".tree details")];
const opened = new Map(folds.map((fold) => [fold, fold.open]));

// Shows an entry of a tree if its own words, or those of one above or below it, hold all that is looked for.
function sift(entry, words, above) {
  const fold = entry.querySelector(":scope > details");
  const own = (fold ? fold.querySelector("summary") : entry).textContent.toLowerCase();
  const is = above || words.every((word) => own.includes(word));
  let below = false;
  for (const child of fold ? fold.querySelectorAll(":scope > ul > li") : []) {
    below = sift(child, words, is) || below;
  }
  entry.hidden = !(is || below);
  if (fold) fold.open = below && !above ? true : opened.get(fold);
  return !entry.hidden;
}

function filter() {
  const words = box.value.toLowerCase().split(/\s+/).filter(Boolean);
  let count = 0;
  for (const card of cards) {
    const text = card.dataset.words.toLowerCase();
    card.hidden = !words.every((word) => text.includes(word));
    if (!card.hidden) count += 1;
  }
  for (const tree of trees) {
    for (const entry of tree.children) {
      if (words.length) sift(entry, words, false);
      else for (const each of [entry, ...entry.querySelectorAll("li")]) each.hidden = false;
    }
  }
  if (!words.length) for (const fold of folds) fold.open = opened.get(fold);
  found.textContent = words.length ? `${count} of ${cards.length} arrays` : `${cards.length} arrays`;
}

function fold(open) {
  for (const each of folds) {
    each.open = open;
    opened.set(each, open);
  }
}

box.addEventListener("input", filter);
document.getElementById("open").addEventListener("click", () => fold(true));
document.getElementById("close").addEventListener("click", () => fold(false));
document.addEventListener("keydown", (event) => {
  if (event.key === "/" && document.activeElement !== box) {
    event.preventDefault();
    box.focus();
  } else if (event.key === "Escape" && document.activeElement === box) {
    box.value = "";
    filter();
  }
});
filter();
