// SPDX-License-Identifier: Apache-2.0
// What the page does: draws its charts in the colours of its theme, sorts its tables, copies commands, saves the manifest.
(() => {
  "use strict";
  const root = document.documentElement;
  const read = (id) => JSON.parse(document.getElementById(id).textContent);
  const figures = new Map(read("figures").map((figure) => [figure.name, figure]));
  const say = (text) => { document.getElementById("said").textContent = text; };

  // Colours: names of the palette stand for what the style sheet says at the moment.
  function coloured(value, style) {
    if (typeof value === "string") return value.startsWith("--") ? style.getPropertyValue(value).trim() : value;
    if (Array.isArray(value)) return typeof value[0] === "number" ? value : value.map((each) => coloured(each, style));
    if (value !== null && typeof value === "object")
      return Object.fromEntries(Object.entries(value).map(([name, each]) => [name, coloured(each, style)]));
    return value;
  }

  // Columns of what is told about a point become one row a point; labels are stored once.
  function unpacked(trace) {
    if (!trace.columns) return trace;
    const columns = trace.columns.map((column) => column.labels ? column.at.map((at) => column.labels[at]) : column);
    const { columns: _, ...rest } = trace;
    return { ...rest, customdata: trace.x.map((_, point) => columns.map((column) => column[point] ?? "–")) };
  }
  for (const figure of figures.values()) figure.data = figure.data.map(unpacked);

  const PRINT_WIDTH = 680; // between the margins of a sheet of A4 [px]
  let printing = false;
  function layoutOf(figure, style, width) {
    const axis = { gridcolor: "--grid", linecolor: "--edge", zerolinecolor: "--edge", tickcolor: "--edge", automargin: true, title: { standoff: 8 } };
    const shared = {
      paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)", hovermode: "closest", autosize: true,
      font: { family: getComputedStyle(document.body).fontFamily, size: width < 500 ? 11 : 13, color: "--text" },
      margin: { l: 8, r: 16, t: 8, b: 8 },
      legend: { orientation: "h", x: 0, y: 1.02, xanchor: "left", yanchor: "bottom", font: { size: width < 500 ? 11 : 12 } },
      hoverlabel: { bgcolor: "--paper", bordercolor: "--edge", font: { color: "--text", size: 12 }, align: "left" },
    };
    const layout = { ...shared, ...figure.layout, legend: { ...shared.legend, ...figure.layout.legend } };
    for (const name of Object.keys(layout).filter((key) => /^[xy]axis\d*$/.test(key)))
      layout[name] = { ...axis, ...layout[name], title: { ...axis.title, ...layout[name].title } };
    if (width < 500) for (const note of layout.annotations ?? []) note.font = { ...note.font, size: 10 };
    if (printing) Object.assign(layout, { autosize: false, width: PRINT_WIDTH, height: figure.height });
    return coloured(layout, style);
  }

  const settings = { responsive: true, displayModeBar: false, doubleClick: "reset" };
  async function draw(plot) {
    const figure = figures.get(plot.dataset.figure), style = getComputedStyle(root);
    await Plotly.react(plot, coloured(figure.data, style), layoutOf(figure, style, plot.clientWidth), settings);
    if (plot.dataset.drawn) return;
    plot.dataset.drawn = "yes";
    plot.addEventListener("keydown", (event) => walk(plot, event));
  }
  const plots = [...document.querySelectorAll(".plot")];
  const shown = (plot) => plot.closest("details:not([open])") === null;
  async function drawShown() {
    for (const plot of plots.filter(shown)) {
      await draw(plot);
      await new Promise((resume) => setTimeout(resume)); // what was pressed meanwhile comes first
    }
  }

  // Arrow keys walk along the points of a chart; up and down change the series.
  const LABEL_MS = 100; // plotly shows a label at most every 50 ms
  const place = new WeakMap();
  function readAloud(plot) {
    const lines = plot.querySelectorAll(".hoverlayer tspan.line, .hoverlayer text:not(:has(tspan))");
    say([...lines].map((each) => each.textContent).join(", "));
  }
  function walk(plot, event) {
    const step = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0] }[event.key];
    if (event.key === "Escape") { Plotly.Fx.unhover(plot); return; }
    if (!step) return;
    event.preventDefault();
    const series = plot.data.flatMap((trace, at) => trace.hoverinfo === "skip" || trace.visible === "legendonly" ? [] : [at]);
    const before = place.get(plot) ?? { series: 0, point: -1 };
    const now = { series: (before.series + step[0] + series.length) % series.length, point: step[0] ? 0 : before.point + step[1] };
    const trace = plot.data[series[now.series]], count = (trace.x ?? trace.y).length;
    now.point = (now.point + count) % count;
    place.set(plot, now);
    Plotly.Fx.hover(plot, [{ curveNumber: series[now.series], pointNumber: now.point }], trace.xaxis ? [`${trace.xaxis}${trace.yaxis ?? "y"}`] : "xy");
    setTimeout(readAloud, LABEL_MS, plot);
  }

  // Light and dark.
  const button = document.getElementById("theme");
  const systemDark = matchMedia("(prefers-color-scheme: dark)");
  const isDark = () => (root.dataset.theme ?? (systemDark.matches ? "dark" : "light")) === "dark";
  function themed() {
    button.textContent = isDark() ? "Light" : "Dark";
    return window.Plotly ? drawShown() : undefined;
  }
  button.addEventListener("click", () => {
    root.dataset.theme = isDark() ? "light" : "dark";
    themed();
    say(`${root.dataset.theme} colours`);
  });
  systemDark.addEventListener("change", themed);
  themed();

  // Tables.
  for (const head of document.querySelectorAll("table.sortable thead button"))
    head.addEventListener("click", () => {
      const cell = head.closest("th"), table = head.closest("table"), column = cell.cellIndex;
      const up = cell.getAttribute("aria-sort") === "none" ? !cell.classList.contains("number") : cell.getAttribute("aria-sort") === "descending";
      for (const other of table.querySelectorAll("thead th")) other.setAttribute("aria-sort", "none");
      cell.setAttribute("aria-sort", up ? "ascending" : "descending");
      const key = (row) => {
        const of = row.cells[column];
        return of.dataset.order === undefined ? null : Number(of.dataset.order);
      };
      const text = (row) => row.cells[column].textContent;
      const rows = [...table.tBodies[0].rows].sort((a, b) => {
        const [x, y] = [key(a), key(b)];
        if (x === null && y === null) return (up ? 1 : -1) * text(a).localeCompare(text(b), "en", { numeric: true });
        if (x === null || y === null) return x === null ? 1 : -1;
        return (up ? 1 : -1) * (x - y);
      });
      table.tBodies[0].append(...rows);
      say(`sorted by ${head.textContent}, ${up ? "ascending" : "descending"}`);
    });

  // Buttons.
  for (const copy of document.querySelectorAll(".copy"))
    copy.addEventListener("click", async () => {
      const text = copy.parentElement.querySelector("code");
      try {
        await navigator.clipboard.writeText(text.textContent);
      } catch {
        getSelection().selectAllChildren(text);
        document.execCommand("copy");
      }
      copy.textContent = "Copied";
      say("copied");
      setTimeout(() => { copy.textContent = "Copy"; }, 1500);
    });
  document.getElementById("save")?.addEventListener("click", () => {
    const link = document.createElement("a");
    link.href = URL.createObjectURL(new Blob([JSON.stringify(read("manifest"), null, 2) + "\n"], { type: "application/json" }));
    link.download = "manifest.json";
    link.click();
    URL.revokeObjectURL(link.href);
  });

  // The library that draws, unpacked; a browser that cannot unpack it shows the tables.
  async function load() {
    if (!plots.length) return;
    if (!window.DecompressionStream) throw new Error("this browser cannot unpack the charts; their tables are unfolded");
    const letters = atob(document.getElementById("library").textContent), packed = new Uint8Array(letters.length);
    for (let at = 0; at < packed.length; at++) packed[at] = letters.charCodeAt(at);
    const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("gzip"));
    const script = document.createElement("script");
    script.textContent = await new Response(stream).text();
    document.head.append(script);
    await drawShown();
  }
  for (const folded of document.querySelectorAll("details.more"))
    folded.addEventListener("toggle", () => { if (folded.open && window.Plotly) drawShown(); });
  let theme;
  addEventListener("beforeprint", () => {
    [theme, root.dataset.theme, printing] = [root.dataset.theme, "light", true];
    if (window.Plotly) plots.filter(shown).forEach(draw); // at once: the sheet is laid out when this returns
  });
  addEventListener("afterprint", () => {
    printing = false;
    if (theme === undefined) delete root.dataset.theme; else root.dataset.theme = theme;
    themed();
  });
  load().then(
    () => { root.dataset.ready = "yes"; performance.mark("ready"); },
    (error) => {
      for (const table of document.querySelectorAll("details.data")) table.open = true;
      for (const plot of plots) { plot.style.height = "auto"; plot.textContent = error.message; }
      root.dataset.ready = "no";
    },
  );
})();
