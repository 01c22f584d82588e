// Values measured while a page is open: the server keeps none.

import { useEffect, useRef, useState } from "preact/hooks";
import type { Chart, ChartData } from "./chart";
import { Scroll } from "./parts";

/** mostSamples bounds what a page remembers. */
const mostSamples = 240;

export interface Sample {
  time: number; // seconds
  values: Record<string, number>;
}

/** useSamples collects the samples of a page, each at a new time. */
export function useSamples(next: Sample | undefined): Sample[] {
  const [samples, setSamples] = useState<Sample[]>([]);
  useEffect(() => {
    if (next) setSamples((before) => [...before, next].slice(-mostSamples));
  }, [next?.time]);
  return samples;
}

/** Measured shows samples as a chart and a table. */
export function Measured({ label, of: samples, unit, max }: { label: string; of: Sample[]; unit: string; max?: number }) {
  const names = [...new Set(samples.flatMap((s) => Object.keys(s.values)))].sort();
  const data: ChartData = {
    times: samples.map((s) => s.time),
    series: names.map((name) => ({ name, values: samples.map((s) => s.values[name] ?? null) })),
    unit, max,
  };
  const text = (v: number | null | undefined) => (v === null || v === undefined ? "" : `${v.toFixed(1)}${unit}`);
  return (
    <>
      <Plot label={label} data={data} />
      <Scroll label={label.toLowerCase()}>
        <table>
          <thead><tr><th>Of</th><th class="number">Now</th><th class="number">Most while this page is open</th></tr></thead>
          <tbody>
            {data.series.map((s) => (
              <tr key={s.name}>
                <th scope="row">{s.name}</th>
                <td class="number">{text(s.values.at(-1))}</td>
                <td class="number">{text(Math.max(...s.values.map((v) => v ?? 0)))}</td>
              </tr>
            ))}
          </tbody>
        </table>
      </Scroll>
    </>
  );
}

function Plot({ label, data }: { label: string; data: ChartData }) {
  const place = useRef<HTMLDivElement>(null);
  const chart = useRef<Promise<Chart | undefined>>(undefined);
  useEffect(() => {
    let shown = true;
    const path = "/assets/chart.js";
    chart.current = import(path).then((m: typeof import("./chart")) => (shown ? m.draw(place.current!, data) : undefined));
    return () => {
      shown = false;
      void chart.current!.then((c) => c?.end());
    };
  }, []);
  useEffect(() => void chart.current!.then((c) => c?.set(data)), [data.times.at(-1), data.series.length]);
  return <div ref={place} class="chart" role="img" aria-label={`${label} over time; the table has the numbers`} />;
}
