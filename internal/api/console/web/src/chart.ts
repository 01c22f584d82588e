// Charts of values over time. Pages load this when they have one.

import uPlot from "uplot";

export interface Series {
  name: string;
  values: (number | null)[];
}

export interface ChartData {
  times: number[]; // seconds
  series: Series[];
  unit: string;
  max?: number; // of the scale; else that of the values
}

const height = 200;

/** leastSpan is the shortest time that a chart shows, in seconds: a few values are at its right end. */
const leastSpan = 300;

// Lines differ by their dashes, too.
const dashes = [[], [8, 4], [2, 3], [10, 3, 2, 3], [5, 2], [1, 2], [12, 6]];
const colours = ["--accent", "--bad", "--good", "--warn", "--text", "--quiet", "--accent"];

export interface Chart {
  set(data: ChartData): void;
  end(): void;
}

/** draw draws a chart in an element, in the colours of the theme. */
export function draw(element: HTMLElement, first: ChartData): Chart {
  let data = first;
  let plot: uPlot | undefined;
  const make = () => {
    plot?.destroy();
    plot = new uPlot(optionsOf(data, element.clientWidth), valuesOf(data), element);
  };
  make();
  const fit = new ResizeObserver(() => plot!.setSize({ width: widthOf(element), height }));
  fit.observe(element);
  const theme = matchMedia("(prefers-color-scheme: dark)");
  theme.addEventListener("change", make);
  const chosen = new MutationObserver(make);
  chosen.observe(document.documentElement, { attributeFilter: ["data-theme"] });
  return {
    set(next) {
      const same = next.series.map((s) => s.name).join() === data.series.map((s) => s.name).join();
      data = next;
      if (same) plot!.setData(valuesOf(data));
      else make();
    },
    end() {
      fit.disconnect();
      chosen.disconnect();
      theme.removeEventListener("change", make);
      plot!.destroy();
    },
  };
}

function widthOf(element: HTMLElement): number {
  const { paddingLeft, paddingRight } = getComputedStyle(element);
  return element.clientWidth - parseFloat(paddingLeft) - parseFloat(paddingRight);
}

function valuesOf(d: ChartData): uPlot.AlignedData {
  return [d.times, ...d.series.map((s) => s.values)];
}

function optionsOf(d: ChartData, width: number): uPlot.Options {
  const style = getComputedStyle(document.documentElement);
  const colour = (name: string) => style.getPropertyValue(name);
  const font = `12px ${getComputedStyle(document.body).fontFamily}`;
  const axis = { stroke: colour("--quiet"), grid: { stroke: colour("--line"), width: 1 }, ticks: { stroke: colour("--line"), width: 1 }, font };
  const time = (t: number) => new Date(t * 1000).toLocaleTimeString("en-GB");
  return {
    width, height,
    cursor: { drag: { x: false, y: false } },
    scales: { x: { range: (_, min, max) => [Math.min(min, max - leastSpan), max] }, y: { range: (_, __, max) => [0, d.max ?? Math.max(max, 1)] } },
    axes: [
      { ...axis, values: (_, ticks) => ticks.map(time), space: 80 },
      { ...axis, values: (_, ticks) => ticks.map((v) => `${v}${d.unit}`), size: 64 },
    ],
    series: [
      { label: "Time", value: (_, t) => (t === null ? "" : time(t)) },
      ...d.series.map((s, i) => ({
        label: s.name,
        stroke: colour(colours[i % colours.length]),
        dash: dashes[i % dashes.length],
        width: 2,
        value: (_: uPlot, v: number | null) => (v === null ? "" : `${v.toFixed(1)}${d.unit}`),
      })),
    ],
  };
}
