"use strict";
// Draws the report from the data in the page. Every name is put on the page as text, never as
// markup; the charting library takes a little markup in its labels, so names are escaped for it.
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const palette = {
    CONV: "#0072b2", GEMM: "#56b4e9", DATA_MOVEMENT: "#d55e00", ELEMENTWISE: "#e69f00",
    OTHER: "#8b95a1", overhead: "#cc79a7",
  };
  const proofs = ["", "yes", "no", "unproven"];
  // What is said of a matrix operator that is not shown to be on SME2.
  const missing = { no: "missed SME2", unproven: "SME2 unproven" };
  const drawn = [];
  const root = document.documentElement;

  // --- building blocks ---------------------------------------------------------------------------

  function element(tag, attributes = {}, ...children) {
    const made = document.createElement(tag);
    for (const [name, value] of Object.entries(attributes)) {
      if (name === "class") made.className = value;
      else if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
      else if (value === true) made.setAttribute(name, "");
      else if (value !== false && value !== null && value !== undefined) made.setAttribute(name, value);
    }
    for (const child of children) {
      if (child !== null && child !== undefined) made.append(child);
    }
    return made;
  }

  const plain = (text) => String(text).replace(/&/g, "&amp;").replace(/</g, "&lt;").replace(/>/g, "&gt;");
  const clipped = (text, width) =>
    text.length <= width ? text : text.slice(0, Math.ceil(width / 2) - 1) + "\u2026" + text.slice(-Math.floor(width / 2) + 1);
  const known = (value) => value !== null && value !== undefined;
  const milliseconds = (value) => !known(value) ? "-" :
    (value >= 100 ? value.toFixed(1) : value >= 1 ? value.toFixed(2) : value.toFixed(4)) + " ms";
  const percent = (value) => known(value) ? (100 * value).toFixed(1) + " %" : "-";
  const whole = (value) => known(value) ? Math.round(value).toLocaleString("en") : "-";
  // Cost stands in for time where time means nothing; both arms must have been counted.
  const counted = (chosen) => chosen.emulated && Object.values(chosen.arms).every((arm) => arm.cost);
  const factor = (value) => known(value) ? value.toFixed(2) + "x" : "-";
  const amount = (number, noun) => `${number} ${noun}${number === 1 ? "" : noun.endsWith("s") ? "es" : "s"}`;
  const ids = data.cases.map((each) => each.id);
  // The same model on two devices is two rows, so a label names the device where it must.
  const labelOf = (each) => ids.filter((id) => id === each.id).length > 1 ? `${each.id} on ${each.device}` : each.id;
  const colour = (name) => getComputedStyle(root).getPropertyValue(name).trim();

  function figureFor(value, unit) {
    if (!known(value)) return "-";
    if (unit === "ns") return milliseconds(value / 1e6);
    if (unit === "bytes") return (value / 1e6).toFixed(1) + " MB";
    if (unit === "share") return percent(value);
    if (unit === "ratio") return factor(value);
    return Number.isInteger(value) || value >= 1e4 ? whole(value) : String(+value.toPrecision(6));
  }

  const failing = ["INVALID", "REGRESSED", "FAILED"], warning = ["INCONCLUSIVE"];
  const rank = (word) => failing.includes(word) ? 0 : warning.includes(word) ? 1 : 2;
  const tone = (word) => ["bad", "weak", ["PASS", "IMPROVED"].includes(word) ? "good" : ""][rank(word)];

  function verdict(word) {
    return word ? element("span", { class: "verdict " + word }, word) : "-";
  }

  // A table whose headings sort it. A column: title, value(row) to sort by, show(row), number.
  function sortable(table, columns, rows, options = {}) {
    const state = { column: options.column ?? -1, down: options.down ?? false, most: options.most ?? 50 };
    const head = element("thead"), body = element("tbody");
    table.replaceChildren();
    if (options.caption) table.append(element("caption", {}, options.caption));
    table.append(head, body);
    const headings = columns.map((column, index) => {
      const button = element("button", { type: "button", onclick: () => {
        state.down = state.column === index ? !state.down : Boolean(column.number);
        state.column = index;
        fill();
      } }, column.title);
      return element("th", { scope: "col", class: column.number ? "number" : "" }, button);
    });
    head.append(element("tr", {}, ...headings));
    const more = element("p");
    if (table.parentElement) table.after(more);
    let shown = rows;

    function compareRows(left, right) {
      const { value } = columns[state.column];
      const a = value(left), b = value(right);
      if (!known(a) || !known(b)) return known(a) ? -1 : known(b) ? 1 : 0;
      const order = typeof a === "number" ? a - b : String(a).localeCompare(String(b));
      return state.down ? -order : order;
    }

    function fill() {
      headings.forEach((heading, index) => {
        if (index === state.column) heading.setAttribute("aria-sort", state.down ? "descending" : "ascending");
        else heading.removeAttribute("aria-sort");
      });
      const sorted = state.column < 0 ? shown : [...shown].sort(compareRows);
      body.replaceChildren(...sorted.slice(0, state.most).map((row) => {
        const cells = columns.map((column) => {
          const shown = column.show ? column.show(row) : String(column.value(row) ?? "-");
          const kind = column.number ? "number" : column.prose ? "name prose" : column.name ? "name" : "";
          const nothing = shown === "-" || shown === "" ? " empty" : "";
          return element("td", { class: kind + nothing, "data-label": column.title }, shown);
        });
        const line = element("tr", {}, ...cells);
        if (options.mark) options.mark(line, row);
        return line;
      }));
      const left = sorted.length - state.most;
      more.replaceChildren();
      if (left > 0) {
        more.append(element("button", { type: "button", class: "more", onclick: () => {
          state.most = Infinity;
          fill();
        } }, `Show ${amount(left, "more row")}`));
      }
    }
    fill();
    return { show(next) { shown = next; fill(); }, fill };
  }

  function scrolling(label, table) {
    return element("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": label }, table);
  }

  function plainTable(caption, headings, rows) {
    const numbers = headings.map((_, column) => rows.every((row) => /^(-|[-\d].*)?$/.test(row[column]) ));
    const table = element("table", {},
      element("caption", {}, caption),
      element("thead", {}, element("tr", {}, ...headings.map((text, column) =>
        element("th", { scope: "col", class: numbers[column] ? "number" : "" }, text)))),
      element("tbody", {}, ...rows.map((row) => element("tr", {}, ...row.map((cell, column) =>
        element("td", { class: numbers[column] ? "number" : "", "data-label": headings[column] }, cell))))));
    return scrolling(caption, table);
  }

  // --- charts ------------------------------------------------------------------------------------

  // A chart is kept as a function, so that it can be drawn again in the other colours.
  function chart(parent, title, small, described, make, wide = false) {
    const place = element("div", { role: "img", "aria-label": `${title}. ${described}` });
    const figure = element("figure", { class: wide ? "wide" : "" },
      element("figcaption", {}, title, small ? element("small", {}, small) : null), place);
    parent.append(figure);
    place.style.minHeight = `${make().height ?? 300}px`;
    const entry = { place, make, shown: false };
    drawn.push(entry);
    watcher.observe(place);
    drawTheRest();
  }

  // A chart near the window is drawn at once, the others while the browser has nothing else to do: a
  // page with many models opens at once, and nobody scrolls to an empty frame.
  let waiting = 0;
  function drawTheRest() {
    if (waiting) return;
    waiting = setTimeout(() => {
      waiting = 0;
      const next = drawn.find((each) => !each.shown && each.place.isConnected);
      if (!next) return;
      watcher.unobserve(next.place);
      draw(next);
      drawTheRest();
    }, 30);
  }

  const watcher = new IntersectionObserver((entries) => {
    for (const { isIntersecting, target } of entries) {
      if (!isIntersecting) continue;
      watcher.unobserve(target);
      const entry = drawn.find((each) => each.place === target);
      if (entry) draw(entry);
    }
  }, { rootMargin: "300px" });

  // What fits between the margins of A4 and of Letter.
  const paperWidth = 670;

  function draw(entry, width) {
    const { place, make } = entry;
    entry.shown = true;
    const text = colour("--text"), line = colour("--line");
    const { traces, layout, height } = make();
    const axis = { gridcolor: line, linecolor: line, zerolinecolor: line, automargin: true };
    Plotly.react(place, traces, {
      paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)",
      font: { color: text, family: "system-ui, sans-serif", size: 12 },
      margin: { l: 8, r: 8, t: 8, b: 40 }, height: height ?? 300, width, autosize: !width,
      legend: { orientation: "h", y: 1, yanchor: "bottom", x: 0 },
      hoverlabel: { bgcolor: colour("--page"), bordercolor: line, font: { color: text } },
      ...layout,
      xaxis: { ...axis, ...layout.xaxis }, yaxis: { ...axis, ...layout.yaxis },
    }, { responsive: true, displayModeBar: false });
  }

  const forget = (parent) => {
    for (let index = drawn.length - 1; index >= 0; index--) {
      if (parent.contains(drawn[index].place)) {
        watcher.unobserve(drawn[index].place);
        Plotly.purge(drawn[index].place);
        drawn.splice(index, 1);
      }
    }
  };

  // Logarithmic where models differ much, from zero where they do not. The marks are 1, 2, 5, 10 …:
  // the library's own on a logarithmic axis leave the zeros out.
  function latencyAxis(cases) {
    const values = cases.flatMap((each) => Object.values(each.latency).map((found) => found.median));
    if (Math.max(...values) < 10 * Math.min(...values)) return { rangemode: "tozero" };
    const from = Math.floor(Math.log10(Math.min(...values))), to = Math.ceil(Math.log10(Math.max(...values)));
    const steps = to - from > 3 ? [1] : [1, 2, 5];
    const tickvals = [];
    for (let power = from; power <= to; power++) steps.forEach((step) => tickvals.push(step * 10 ** power));
    return { type: "log", tickvals, ticktext: tickvals.map((value) => String(+value.toPrecision(1))) };
  }

  function latencyOverview(parent, cases) {
    const labels = cases.map((each) => plain(clipped(labelOf(each), 34)));
    const arms = ["off", "on"].filter((arm) => cases.some((each) => each.latency[arm]));
    chart(parent, `Latency, SME2 ${arms.join(" and ")}`, "Median of process medians with its 95 % interval",
      amount(cases.length, "model"), () => ({
        height: 110 + 24 * cases.length,
        traces: arms.map((arm) => {
          const found = cases.map((each) => each.latency[arm]);
          return {
            type: "scatter", mode: "markers", name: `SME2 ${arm}`, y: labels,
            x: found.map((entry) => entry?.median),
            error_x: {
              type: "data", symmetric: false, thickness: 2,
              array: found.map((entry) => known(entry?.high) ? entry.high - entry.median : 0),
              arrayminus: found.map((entry) => known(entry?.low) ? entry.median - entry.low : 0),
            },
            marker: { size: 10, symbol: arm === "on" ? "circle" : "diamond", color: colour(`--${arm}`) },
            hovertemplate: "%{y}<br>%{x:.4g} ms<extra>SME2 " + arm + "</extra>",
          };
        }),
        layout: {
          xaxis: { title: { text: "milliseconds" }, ...latencyAxis(cases) },
          yaxis: { autorange: "reversed", type: "category" },
        },
      }));
  }

  function speedupOverview(parent, cases) {
    chart(parent, "Speedup by SME2", "Off over on, with its interval; 1 means no difference", amount(cases.length, "model"), () => ({
      height: 110 + 24 * cases.length,
      traces: [{
        type: "scatter", mode: "markers", y: cases.map((each) => plain(clipped(labelOf(each), 34))),
        x: cases.map((each) => each.speedup[0]),
        error_x: {
          type: "data", symmetric: false, thickness: 2,
          array: cases.map((each) => known(each.speedup[2]) ? each.speedup[2] - each.speedup[0] : 0),
          arrayminus: cases.map((each) => known(each.speedup[2]) ? each.speedup[0] - each.speedup[1] : 0),
        },
        marker: { size: 10, color: colour("--accent") },
        hovertemplate: "%{y}<br>%{x:.2f}x<extra></extra>",
      }],
      layout: {
        showlegend: false, yaxis: { autorange: "reversed", type: "category" },
        xaxis: { title: { text: "times faster" }, rangemode: "tozero" },
        shapes: [{ type: "line", x0: 1, x1: 1, yref: "paper", y0: 0, y1: 1, line: { dash: "dot", color: colour("--quiet") } }],
      },
    }));
  }

  // How much of the time, or of the instructions, ran on what.
  function engineOverview(parent, cases) {
    const labels = cases.map((each) => plain(clipped(labelOf(each), 34)));
    const units = [...new Set(cases.map((each) => each.engines.of))];
    chart(parent, `Where the ${units.join(", ")} went: SME2, NEON, portable`,
      `With SME2 on; percent of ${units.join(" or ")}${units.includes("instructions") ? " (cost, not time)" : ""}`,
      cases.map((each) => `${each.id}: ` + data.engines.map((name, index) => `${name} ${percent(each.engines.shares[index] ?? 0)}`).join(", ")).join("; "), () => ({
        height: 110 + 24 * cases.length,
        traces: data.engines.map((name, index) => ({
          type: "bar", orientation: "h", name, y: labels, marker: { color: colour(`--${name}`) },
          x: cases.map((each) => 100 * (each.engines.shares[index] ?? 0)),
          text: cases.map((each) => !(each.engines.shares[index] >= 0.06) ? "" : `${(100 * each.engines.shares[index]).toFixed(0)} %`),
          textposition: "inside", insidetextanchor: "middle", textangle: 0, constraintext: "inside",
          hovertemplate: "%{y}<br>%{x:.1f} %<extra>" + name + "</extra>",
        })),
        layout: {
          barmode: "stack", bargap: 0.35, yaxis: { autorange: "reversed", type: "category" },
          xaxis: { title: { text: "percent" }, range: [0, 100] },
          legend: { orientation: "h", y: 1, yanchor: "bottom", x: 0, traceorder: "normal" },
        },
      }), true);
  }

  // The operators that cost most, in the colour of what they ran on.
  function costliest(parent, chosen) {
    const found = chosen.arms[chosen.arm];
    if (!found) return;
    const cost = counted(chosen);
    const weights = cost ? found.cost.instructions : chosen.emulated ? null : found.time;
    if (!weights || !weights.length) return;
    const total = cost ? found.cost.total : weights.reduce((sum, each) => sum + each, 0) || 1;
    const most = weights.map((weight, index) => [weight, index]).sort((a, b) => b[0] - a[0]).slice(0, 12);
    const small = innerWidth < 640;
    const title = (index) => {
      const module = found.names[found.module[index]], name = found.names[found.label[index]];
      return clipped(module && !small ? `${module}: ${name}` : module || name, small ? 22 : 46);
    };
    // Two operators may share a title; the chart needs each once.
    const labels = most.map(([, index]) => plain(`${index} ${title(index)}`));
    chart(parent, `Costliest operators, SME2 ${chosen.arm}`, `Percent of the ${cost ? "instructions: cost, not time" : "time, traced"}; the number is the operator's place`,
      most.map(([weight, index]) => `${found.names[found.label[index]]} ${percent(weight / total)}`).join("; "), () => ({
        height: 110 + 22 * most.length,
        traces: data.engines.map((name, engine) => ({
          type: "bar", orientation: "h", name, marker: { color: colour(`--${name}`) },
          y: labels.filter((_, place) => found.engine[most[place][1]] === engine),
          x: most.filter(([, index]) => found.engine[index] === engine).map(([weight]) => 100 * weight / total),
          hovertemplate: "%{y}<br>%{x:.1f} %<extra>" + name + "</extra>",
        })).filter((trace) => trace.y.length),
        layout: {
          bargap: 0.25, barmode: "stack",
          yaxis: { autorange: "reversed", type: "category", categoryorder: "array", categoryarray: labels, tickfont: { size: 11 } },
          xaxis: { title: { text: "percent" }, rangemode: "tozero" },
          showlegend: true,
        },
      }), true);
  }

  function breakdown(parent, chosen) {
    const arms = Object.keys(chosen.arms);
    const both = arms.join(" and ");
    const labels = arms.map((arm) => `SME2 ${arm}`);
    const cost = counted(chosen);
    const names = [...data.categories, ...(chosen.emulated && !cost ? [] : ["overhead"])];
    const value = (arm, name) => {
      const found = chosen.arms[arm];
      const index = data.categories.indexOf(name);
      if (cost) return index < 0 ? found.cost.runtime : found.cost.categories[index];
      if (chosen.emulated) return found.counts[index];
      return index < 0 ? found.overhead : found.times[index];
    };
    const unit = cost ? "instructions" : chosen.emulated ? "operators" : "ms";
    const present = names.filter((name) => arms.some((arm) => value(arm, name)));
    const bars = (share) => () => ({
      height: 360,
      traces: present.map((name) => {
        const totals = arms.map((arm) => names.reduce((sum, each) => sum + value(arm, each), 0) || 1);
        return {
          type: "bar", name, x: labels, marker: { color: palette[name] }, textposition: "inside",
          insidetextanchor: "middle", textangle: 0, constraintext: "inside",
          y: arms.map((arm, index) => share ? 100 * value(arm, name) / totals[index] : value(arm, name)),
          text: arms.map((arm, index) => {
            const part = value(arm, name) / totals[index];
            return part < 0.04 ? "" : share ? `${(100 * part).toFixed(0)} %`
              : cost ? whole(value(arm, name)) : chosen.emulated ? String(value(arm, name)) : value(arm, name).toPrecision(3);
          }),
          hovertemplate: `%{x}<br>%{y:.4g} ${share ? "%" : unit}<extra>${name}</extra>`,
        };
      }),
      layout: {
        uniformtext: { minsize: 9, mode: "hide" },
        barmode: "stack", bargap: 0.35, legend: { orientation: "h", y: -0.12, yanchor: "top", x: 0, traceorder: "normal" },
        yaxis: { title: { text: share ? "percent" : unit }, ...(share ? { range: [0, 100] } : {}) },
      },
    });
    const described = arms.map((arm) => `SME2 ${arm}: ` + present.map((name) => `${name} ${value(arm, name).toPrecision(3)} ${unit}`).join(", ")).join(". ");
    if (cost) {
      chart(parent, `Instructions by category, SME2 ${both}`, "Executed in one inference; this is cost, not time", described, bars(false));
      chart(parent, `Shares of instructions, SME2 ${both}`, "Where the work goes", described, bars(true));
    } else if (chosen.emulated) {
      chart(parent, `Operators by category, SME2 ${both}`, "Counts, since emulated times mean nothing", described, bars(false));
    } else {
      chart(parent, `Time by category, SME2 ${both}`, "Of the traced runs; tracing itself costs time", described, bars(false));
      chart(parent, `Shares by category, SME2 ${both}`, "Where the bottleneck moves", described, bars(true));
    }
  }

  function distribution(parent, chosen) {
    const arms = Object.keys(chosen.latency);
    if (!arms.length) return;
    chart(parent, "Process medians", "One point a fresh process, in the order they ran", arms.map((arm) =>
      `SME2 ${arm}: median ${milliseconds(chosen.latency[arm].median)} of ${amount(chosen.latency[arm].processes.length, "process")}`).join("; "), () => ({
      traces: arms.map((arm) => ({
        type: "scatter", mode: "markers", name: `SME2 ${arm}`, y: chosen.latency[arm].processes,
        x: chosen.latency[arm].processes.map((_, index) => index + 1),
        marker: { size: 8, symbol: arm === "on" ? "circle" : "diamond", color: colour(`--${arm}`) },
        hovertemplate: "process %{x}<br>%{y:.4g} ms<extra>SME2 " + arm + "</extra>",
      })),
      layout: { xaxis: { title: { text: "process" }, dtick: 5 }, yaxis: { title: { text: "milliseconds" }, rangemode: "tozero" } },
    }), true);
  }

  function timeline(parent, chosen) {
    const arms = Object.keys(chosen.arms);
    const cost = counted(chosen);
    // Lines and not bars: a bar is never thinner than a pixel, and many thin ones would hide others.
    const traces = () => data.categories.map((name, category) => {
      const trace = {
        type: "scatter", mode: "lines", name, line: { color: palette[name], width: 38, simplify: false },
        x: [], y: [], text: [], connectgaps: false, hovertemplate: "%{text}<extra>" + name + "</extra>",
      };
      for (const arm of arms) {
        const found = chosen.arms[arm];
        let start = 0;
        found.label.forEach((label, index) => {
          const length = cost ? found.cost.instructions[index] : chosen.emulated ? 1 : found.time[index];
          if (found.category[index] === category) {
            const told = plain(clipped(found.names[label], 70)) + (cost ? `<br>${whole(length)} instructions`
              : chosen.emulated ? `<br>operator ${start}` : `<br>${length.toFixed(1)} \u00b5s`);
            trace.x.push(start, start + length, null);
            trace.y.push(`SME2 ${arm}`, `SME2 ${arm}`, null);
            trace.text.push(told, told, "");
          }
          start += length;
        });
      }
      return trace;
    }).filter((trace) => trace.x.length);
    chart(parent, chosen.emulated ? cost ? "One inference, by instructions" : "One inference, operator by operator" : "Timeline of one inference",
      cost ? "Each operator is as wide as what it executed; drag to zoom, double click to go back"
        : chosen.emulated ? "The order is exact; every operator is drawn equally wide, since emulated times mean nothing"
        : "Each operator is as wide as its time in traced runs. Drag to zoom, double click to go back",
      `${amount(arms.length, "arm")}, ${amount(chosen.arms[arms[0]].label.length, "operator")}`, () => ({
        height: 130 + 60 * arms.length, traces: traces(),
        layout: {
          hovermode: "closest", yaxis: { range: [arms.length - 0.5, -0.5], type: "category", fixedrange: true, categoryarray: arms.map((arm) => `SME2 ${arm}`) },
          xaxis: { rangemode: "tozero", title: { text: cost ? "executed instructions" : chosen.emulated ? "operator" : "microseconds" } },
        },
      }), true);
  }

  // Minutes under load: what an inference takes, and below it what heat does to the device.
  function sustained(parent, chosen) {
    const found = chosen.sustained;
    if (!found || !found.minutes.length) return;
    const panels = Object.entries(found.panels), part = 1 / panels.length;
    const axis = (index) => `y${index ? index + 1 : ""}`;
    chart(parent, "Under load", found.told, found.told, () => ({
      height: 120 + 150 * panels.length,
      traces: panels.map(([name, values], index) => ({
        type: "scatter", mode: "lines", name, x: found.minutes, y: values, yaxis: axis(index),
        line: { color: colour("--accent") }, hovertemplate: "%{x:.2f} min: %{y:.4g} " + name + "<extra></extra>",
      })),
      layout: {
        showlegend: false, xaxis: { title: { text: "minutes" }, anchor: axis(panels.length - 1) },
        ...Object.fromEntries(panels.map(([name], index) => [`yaxis${index ? index + 1 : ""}`, {
          title: { text: name }, rangemode: "tozero",
          domain: [1 - (index + 1) * part + (index < panels.length - 1 ? 0.04 : 0), 1 - index * part],
        }])),
      },
    }), true);
  }

  // --- the parts of one case ---------------------------------------------------------------------

  function figures(chosen) {
    const tables = chosen.figures.filter((rows) => rows.length > 1);
    return tables.length ? element("details", {}, element("summary", {}, "All figures"),
      ...tables.map(([titles, ...rows]) => plainTable(titles[0] === "arm" ? "Latency" : "Cost", titles, rows))) : null;
  }

  function choice(label, id, options, changed) {
    const select = element("select", { id, onchange: changed },
      ...options.map(([value, text]) => element("option", { value }, text)));
    return element("label", { for: id }, label, select);
  }

  function operators(parent, chosen) {
    parent.append(element("h3", {}, "Operators"));
    const arms = Object.keys(chosen.arms).reverse();
    const timed = !chosen.emulated;
    const cost = counted(chosen);
    const rowsOf = (arm) => {
      const found = chosen.arms[arm];
      return found.label.map((label, index) => ({
        index, name: found.names[label], category: data.categories[found.category[index]],
        kind: found.kinds[found.kind[index]], ran: found.portable[index] ? "portable" : "delegated",
        sme2: proofs[found.sme2[index]], call: found.call[index],
        time: timed ? found.time[index] : null,
        share: timed ? found.share[index] : cost ? found.cost.instructions[index] / found.cost.total : null,
        instructions: cost ? found.cost.instructions[index] : null,
        kernel: cost ? found.cost.kernel[index] : null, engine: data.engines[found.engine[index]],
        module: found.names[found.module[index]], shapes: found.names[found.shapes[index]],
      }));
    };
    const any = ["", "all"];
    const controls = element("p", { class: "controls" });
    const table = element("table", { id: "operator-table" });
    const count = element("p", { class: "quiet", role: "status", id: "operator-count" });
    let rows = rowsOf(arms[0]);
    const value = (id) => document.getElementById(id)?.value ?? "";
    const filter = () => {
      const words = value("operator-search").toLowerCase();
      const kept = rows.filter((row) =>
        (!words || [row.name, row.kind, row.module].some((text) => text.toLowerCase().includes(words))) &&
        (!value("operator-ran") || row.ran === value("operator-ran")) &&
        (!value("operator-sme2") || (value("operator-sme2") === "none" ? !row.sme2 : row.sme2 === value("operator-sme2"))) &&
        (!value("operator-category") || row.category === value("operator-category")));
      view.show(kept);
      const share = timed || cost
        ? `, ${percent(kept.reduce((sum, row) => sum + row.share, 0))} of the ${cost ? "instructions" : "time"}` : "";
      count.textContent = `${kept.length} of ${amount(rows.length, "operator")}${share}`;
    };
    controls.append(
      choice("Arm", "operator-arm", arms.map((arm) => [arm, `SME2 ${arm}`]), () => { rows = rowsOf(value("operator-arm")); filter(); }),
      element("label", { for: "operator-search" }, "Name",
        element("input", { id: "operator-search", type: "search", placeholder: "operator or module", oninput: filter })),
      choice("Ran", "operator-ran", [any, ["delegated", "delegated"], ["portable", "portable"]], filter),
      choice("SME2", "operator-sme2", [any, ["yes", "on SME2"], ["no", "not on SME2"], ["unproven", "unproven"], ["none", "no matrix operator"]], filter),
      choice("Category", "operator-category", [any, ...data.categories.map((name) => [name, name])], filter));
    parent.append(controls, count, scrolling("Table of operators", table));
    const columns = [
      { title: "#", number: true, value: (row) => row.index },
      { title: "operator", name: true, value: (row) => row.name },
      ...(rows.some((row) => row.module) ? [{ title: "module", name: true, value: (row) => row.module || null, show: (row) => row.module || "-" }] : []),
      ...(rows.some((row) => row.shapes) ? [{ title: "shapes", name: true, value: (row) => row.shapes || null, show: (row) => row.shapes || "-" }] : []),
      { title: "ran on", value: (row) => row.engine, show: (row) => element("span", {},
        element("span", { class: "whole" }, swatch(`--${row.engine}`), row.engine), missing[row.sme2] ? element("small", {}, missing[row.sme2]) : null) },
      { title: "category", value: (row) => `${row.category}, ${row.kind}`, show: (row) => element("span", {},
        element("span", { class: "whole" }, swatch(palette[row.category]), row.category), element("small", {}, row.kind)) },
    ];
    if (timed) columns.push(
      { title: "time \u00b5s", number: true, value: (row) => row.time, show: (row) => row.time.toFixed(1) },
      { title: "share", number: true, value: (row) => row.share, show: (row) => percent(row.share) });
    if (cost) columns.push(
      { title: "instructions", number: true, value: (row) => row.instructions, show: (row) => whole(row.instructions) },
      { title: "share", number: true, value: (row) => row.share, show: (row) => percent(row.share) },
      { title: "most of it in", name: true, value: (row) => row.kernel, show: (row) => kernelName(row.kernel) });
    const view = sortable(table, columns, rows, {
      column: Math.max(0, columns.findIndex((column) => column.title === "share")), down: timed || cost, most: 25 });
    filter();
  }

  function swatch(shade) {
    const box = element("span", { class: "swatch", "aria-hidden": "true" });
    box.style.background = shade.startsWith("--") ? `var(${shade})` : shade;
    return box;
  }

  // Where a library hides its symbols, a kernel has no name: then its operator stands for it.
  const place = (name) => /^(.+)\+0x([0-9a-f]+)$/.exec(name);
  function kernelName(name, operator) {
    if (!place(name)) return element("code", {}, name);
    return element("span", { title: name }, operator ? `unnamed kernel of ${operator}` : "unnamed kernel");
  }

  function kernels(parent, chosen) {
    if (!chosen.kernels) return;
    parent.append(element("h3", {}, "Kernel census"));
    const ran = chosen.kernels.source === "emulator" ? "Kernels that ran, in blocks of code the emulator translated"
      : "Operators that ran, from XNNPACK's log";
    const table = element("table", { id: "kernel-table" });
    parent.append(scrolling("Table of kernels", table));
    const operators = chosen.kernels.rows.some((row) => row.operator);
    sortable(table, [
      { title: "kernel", name: true, value: (row) => place(row.name) ? `~${row.operator}` : row.name, show: (row) => kernelName(row.name, row.operator) },
      ...(operators ? [{ title: "operator", name: true, value: (row) => row.operator || null,
        show: (row) => row.operator || element("span", { class: "quiet" }, "none: it ran outside of the inference") }] : []),
      { title: "family", value: (row) => row.family },
      ...["on", "sme1", "off"].filter((arm) => arm !== "sme1" || chosen.arms.sme1).map((arm) => (
        { title: `SME2 ${arm}`, number: true, value: (row) => row[arm] ?? null })),
    ], chosen.kernels.rows, { caption: ran, column: operators ? 3 : 2, down: true, most: 40 });
  }

  function frontier(parent, chosen) {
    if (!chosen.frontier) return;
    const [titles, ...rows] = chosen.frontier.rows;
    parent.append(element("h3", {}, "Best number of threads"),
      plainTable("Median of process medians with its 95 % interval", titles, rows),
      element("ul", {}, ...chosen.frontier.notes.map((text) => element("li", {}, text))));
  }

  function baseline(parent, chosen) {
    parent.append(element("h3", {}, "Checks against the baseline"));
    if (chosen.checks.length) {
      const table = element("table", { id: "check-table" });
      parent.append(scrolling("Table of checks", table));
      const worst = [...chosen.checks].sort((a, b) => rank(a.verdict) - rank(b.verdict));
      // Both arms often have the same reasons: the second one names the first.
      const first = (row) => worst.find((each) => each.details.join("\n") === row.details.join("\n"));
      const found = (row) => row.details.length && first(row) !== row ? `as ${first(row).metric}` : element("span", {}, row.message,
        row.where ? element("small", {}, row.where.replaceAll("`", "")) : null,
        ...(row.details.length ? [element("details", { open: failing.includes(row.verdict) }, element("summary", {}, "details"),
          element("ul", {}, ...row.details.map((each) => element("li", {}, each))))] : []));
      sortable(table, [
        { title: "check", value: (row) => row.metric },
        { title: "verdict", value: (row) => row.verdict, show: (row) => verdict(row.verdict) },
        { title: "baseline", number: true, value: (row) => row.old, show: (row) => figureFor(row.old, row.unit) },
        { title: "now", number: true, value: (row) => row.new, show: (row) => figureFor(row.new, row.unit) },
        { title: "change", number: true, value: (row) => known(row.old) && known(row.new) ? row.new - row.old : null,
          show: (row) => row.interval ? `${row.change} ${row.interval}` : row.change },
        { title: "limit", number: true, value: (row) => row.limit || null, show: (row) => row.limit || "-" },
        { title: "what was found", name: true, prose: true, value: (row) => row.message, show: found },
      ], worst, { caption: "Every check that was made" });
    }
    if (!chosen.checks.some((check) => known(check.old))) {
      parent.append(element("p", { class: "quiet" }, "There is no baseline yet: --update-baselines makes one."));
    }
  }

  function spent(body, chosen) {
    const charts = element("div", { class: "charts" });
    body.append(element("h3", {}, chosen.emulated ? "Where the work goes" : "Where the time goes"), charts);
    costliest(charts, chosen);
    breakdown(charts, chosen);
    distribution(charts, chosen);
    sustained(charts, chosen);
    timeline(charts, chosen);
    frontier(body, chosen);
    operators(body, chosen);
    kernels(body, chosen);
  }

  function show(index) {
    const chosen = data.cases[index];
    const body = document.getElementById("case-body");
    forget(body);
    body.replaceChildren();
    document.getElementById("case-choice").value = String(index);
    document.querySelectorAll("#overview-table tbody tr").forEach((row) =>
      row.classList.toggle("chosen", row.dataset.index === String(index)));
    answers(chosen);
    body.append(element("h3", {}, chosen.id));
    if (chosen.reason) body.append(element("div", { class: `why ${tone(chosen.verdict)}` },
      element("strong", {}, verdict(chosen.verdict), `: ${chosen.reason} `, chosen.where ? element("code", {}, chosen.where.replaceAll("`", "")) : "")));
    const all = figures(chosen);
    if (all) body.append(all);
    if (!chosen.valid) body.append(element("p", { class: "note bad" }, chosen.evidence));
    else if (chosen.evidence) body.append(element("p", {}, chosen.evidence));
    baseline(body, chosen);
    // A model that could not be exported has nothing to draw.
    if (Object.keys(chosen.arms).length) spent(body, chosen);
    if (chosen.findings.length || chosen.notes.length) {
      body.append(element("h3", {}, "What to know"),
        element("ul", {}, ...[...chosen.findings, ...chosen.notes].map((text) => element("li", {}, text))));
    }
    body.append(element("h3", {}, "How to reproduce"), element("pre", { tabindex: "0" }, chosen.reproduce),
      element("details", {}, element("summary", {}, "What it was measured with"),
        plainTable("What it was measured with", ["what", "value"], chosen.environment)));
  }

  // --- the page ----------------------------------------------------------------------------------

  function choose(index, scroll) {
    show(index);
    window.history.replaceState(null, "", `#case-${index}`);
    if (scroll) document.getElementById("case").scrollIntoView();
  }

  // By what a figure of the row is sorted: "8.319 ms", "8.38x fewer", "2 of 3", "48% CONV"; nothing for a dash.
  function amountOf(text) {
    const found = /([\d.]+)(?: (us|ms|s)\b|x (more))?/.exec(text);
    if (!found) return null;
    return found[3] ? 1 / found[1] : found[1] * ({ us: 1e-3, s: 1e3 }[found[2]] ?? 1);
  }

  // On one line, however narrow the column.
  const together = (text) => text.replaceAll(" ", "\u00a0").replace("->", "-\u2060>");

  function overview() {
    const columns = [
      { title: "model", name: true, value: (each) => each.id, show: (each) => element("button", {
        type: "button", class: "open", onclick: () => choose(data.cases.indexOf(each), true) }, each.id) },
      { title: "verdict", value: (each) => each.verdict, show: (each) => verdict(each.verdict) },
      { title: "largest change", name: true, value: (each) => each.reason, show: (each) => each.reason?.replace(/\S+ -> \S+/, together) ?? "-" },
      ...(new Set(data.cases.map((each) => each.device)).size > 1 ? [{ title: "device", value: (each) => each.device }] : []),
      ...Object.keys(data.titles).map((title) => (
        { title, number: true, value: (each) => amountOf(each.row[title] ?? "-"), show: (each) => each.row[title] ?? "-" })),
    ];
    // A column in which no model has anything to say is left out.
    const told = columns.filter((column, index) => !index || data.cases.some((each) => known(column.value(each))));
    sortable(document.getElementById("overview-table"), told, data.cases, {
      caption: "Failing first; a heading sorts, a name opens the model below",
      mark: (line, each) => { line.dataset.index = String(data.cases.indexOf(each)); },
    });
    const charts = document.getElementById("overview-charts");
    const measured = data.cases.filter((each) => Object.keys(each.latency).length);
    const faster = data.cases.filter((each) => each.speedup);
    const used = data.cases.filter((each) => each.engines);
    if (measured.length) latencyOverview(charts, measured);
    if (faster.length) speedupOverview(charts, faster);
    if (used.length) engineOverview(charts, used);
    document.getElementById("compared").hidden = !(measured.length || faster.length || used.length);
  }

  // What limits the figures stands at the end: it is true of all of them.
  function notes() {
    const place = document.getElementById("notes");
    const told = data.cases.length ? data.notes : ["No model was measured."];
    place.append(...told.map((text) => element("p", { class: "note" }, text)));
    place.hidden = place.children.length < 2;
  }

  // The largest effect of a case, and the line of the model that it is about.
  const told = (each) => [element("strong", {}, each.reason), each.where ? element("code", {}, each.where.replaceAll("`", "")) : "",
    element("span", {}, labelOf(each))];

  function answers(chosen) {
    document.getElementById("answers-title").textContent = `${chosen.id} on ${chosen.device}`;
    const told = Object.entries(chosen.row).filter(([title]) => data.titles[title]);
    document.getElementById("answers-list").replaceChildren(...told.map(([title, text]) => {
      // A category belongs to the words: "CONV 48%", "95% DATA_MOVEMENT".
      const category = data.categories.find((name) => text.includes(name)) ?? "";
      return element("div", {}, element("dd", {}, text.replace(category, "").trim()),
        element("dt", {}, `${data.titles[title]} ${category}`));
    }));
  }

  // What is in the headline is not said again.
  function failures() {
    const bad = data.cases.filter((each) => each.reason && rank(each.verdict) < 2);
    document.getElementById("failed-list").append(...bad.slice(0, 12).map((each) => element("li", {},
      verdict(each.verdict), " ", element("strong", {}, each.id), `: ${each.reason} `, each.where ? element("code", {}, each.where.replaceAll("`", "")) : "")));
    if (bad.length > 12) document.getElementById("failed-list").append(element("li", {}, `${bad.length - 12} more in the table below`));
    document.getElementById("failed").hidden = !bad.length;
  }

  function headline() {
    const { counts, recorded, commit, devices, versions } = data.headline;
    const place = document.getElementById("headline");
    for (const [word, number] of Object.entries(counts)) {
      if (number || word === "failed" && data.cases.length) place.append(element("span", { class: number ? word : "" },
        element("b", {}, String(number)), ` ${word}`));
    }
    const worst = data.cases[0];
    if (worst && worst.reason && rank(worst.verdict) < 2) place.prepend(...told(worst));
    document.getElementById("subtitle").textContent = [
      recorded && recorded.replace("T", " ").replace("Z", " UTC"), commit && `commit ${commit}`, devices.join(", "),
      ...versions.map(([name, version]) => `${name} ${version}`), `pytest-sme2 ${data.version}`,
    ].filter(Boolean).join(" \u00b7 ");
  }

  function findings() {
    const most = 3;
    const place = document.getElementById("findings-list");
    const next = document.getElementById("next");
    next.textContent = data.next;
    next.hidden = !data.next;
    const add = (found) => place.append(element("li", {},
      found.share >= 0.001 ? element("b", {}, `${percent(found.share)} `) : null, element("strong", {}, found.model), ": ",
      found.text, found.remedy ? element("small", {}, found.remedy) : null));
    data.insights.slice(0, most).forEach(add);
    const left = data.insights.slice(most);
    if (left.length) {
      const button = element("button", { type: "button", class: "more", onclick: () => {
        button.remove();
        left.forEach(add);
      } }, `Show ${amount(left.length, "more finding")}`);
      place.after(button);
    }
    document.getElementById("findings").hidden = !data.insights.length;
  }

  function dark() {
    return root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  }

  function themes() {
    const button = document.getElementById("theme");
    const tell = () => {
      button.textContent = dark() ? "Light" : "Dark";
      button.setAttribute("aria-pressed", String(dark()));
      button.setAttribute("aria-label", `Switch to ${dark() ? "light" : "dark"} colours`);
    };
    const redraw = () => { tell(); drawn.filter((each) => each.shown).forEach((each) => draw(each)); };
    button.addEventListener("click", () => { root.dataset.theme = dark() ? "light" : "dark"; redraw(); });
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);
    // Paper is white and narrow, whatever the screen is.
    let chosen;
    window.addEventListener("beforeprint", () => {
      chosen = root.dataset.theme;
      root.dataset.theme = "light";
      drawn.forEach((each) => draw(each, paperWidth));
    });
    window.addEventListener("afterprint", () => {
      if (chosen) root.dataset.theme = chosen;
      else delete root.dataset.theme;
      redraw();
    });
    // Colours are those of the paper until the browser has left it, which may be later.
    matchMedia("print").addEventListener("change", ({ matches }) => { if (!matches) redraw(); });
    tell();
  }

  headline();
  failures();
  document.getElementById("answers").hidden = !data.cases.length;
  themes();
  notes();
  overview();
  findings();
  const picker = document.getElementById("case-choice");
  picker.append(...data.cases.map((each, index) => element("option", { value: String(index) }, `${each.id} on ${each.device}`)));
  picker.addEventListener("change", () => choose(Number(picker.value), false));
  if (data.cases.length) {
    const wanted = /^#case-(\d+)$/.exec(location.hash);
    show(wanted && data.cases[wanted[1]] ? Number(wanted[1]) : 0);
  } else {
    document.getElementById("case").hidden = true;
  }
  root.dataset.ready = "yes";
})();
