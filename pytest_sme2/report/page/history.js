"use strict";
(() => {
  const form = document.getElementById("filters");
  const rows = [...document.querySelectorAll("tbody tr")];
  const changes = rows.filter((row) => row.dataset.size), cases = rows.filter((row) => row.dataset.number);
  function show() {
    const { case: name, figure, device, least } = Object.fromEntries(new FormData(form));
    const wanted = name.trim().toLowerCase();
    const numbers = new Set();
    for (const row of cases) {
      row.hidden = !row.dataset.case.toLowerCase().includes(wanted) || (device && row.dataset.device !== device);
      if (!row.hidden) numbers.add(row.dataset.number);
    }
    for (const row of changes) {
      row.hidden = !row.dataset.cases.trim().split(" ").some((number) => numbers.has(number))
        || (figure && !row.dataset.figure.includes(figure)) || Number(row.dataset.size) < Number(least);
    }
    form.querySelector("output").value = `${changes.filter((row) => !row.hidden).length} of ${changes.length} changes`;
  }
  const figures = changes.flatMap((row) => row.dataset.figure.replace(/ \([^)]*\)/g, "").split(", "));
  for (const [name, values] of [["figure", figures], ["device", cases.map((row) => row.dataset.device)]]) {
    for (const value of [...new Set(values)].sort()) form.elements[name].append(new Option(value));
  }
  form.addEventListener("input", show);
  form.addEventListener("submit", (event) => event.preventDefault());
  form.hidden = false;
  show();
  document.documentElement.dataset.ready = "yes";
})();
