"use strict";
const box = document.getElementById("filter");
const found = document.getElementById("found");
const cards = [...document.querySelectorAll(".card")];
const files = [...document.querySelectorAll(".file")];
// a single file stays unfolded
const folds = [...document.querySelectorAll(files.length > 1 ? "details" : ".tree details")];
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

// Shows the cards and entries of a file that hold all that is looked for, and what is above them. Unfolds it if there are any.
function siftFile(file, words) {
  const name = files.length > 1 ? file.querySelector("summary").textContent : "";
  let any = !words.length;
  for (const part of file.querySelectorAll(".cards, .tree")) {
    for (const child of part.children) {
      const text = `${name} ${child.dataset.words}`.toLowerCase();
      if (child.matches(".card")) child.hidden = !words.every((word) => text.includes(word));
      else if (words.length) sift(child, words, false);
      else for (const each of [child, ...child.querySelectorAll("li")]) each.hidden = false;
    }
    const shown = [...part.children].some((child) => !child.hidden);
    part.previousElementSibling.hidden = !shown;
    any = any || shown;
  }
  file.hidden = !any;
  if (words.length && files.length > 1) file.open = any;
}

function filter() {
  const words = box.value.toLowerCase().split(/\s+/).filter(Boolean);
  for (const file of files) siftFile(file, words);
  if (!words.length) for (const fold of folds) fold.open = opened.get(fold);
  const count = (all) => `${all.filter((it) => !it.hidden).length} of ${all.length}`;
  const inFiles = files.length > 1 ? `, ${count(files)} files` : "";
  found.textContent = words.length ? `${count(cards)} arrays${inFiles}` : `${found.dataset.arrays} arrays`;
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
