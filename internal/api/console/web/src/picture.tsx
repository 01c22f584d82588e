// Pictures in layers, from the outside in.

import { useEffect, useState } from "preact/hooks";
import type { LayoutAnswer, LayoutRequest } from "./layout";
import { go } from "./router";

/** layerNames are the names of the layers of the virtual network. */
export const layerNames = ["Outside", "Uplinks", "External networks", "Routers", "Networks", "Ports"];

/** Drawn is a node as a picture shows it. */
export interface Drawn {
  id: string;
  layer: number; // index in the names of the layers
  name: string;
  detail: string; // the second line
  classes: string;
  to?: string; // where it leads
  hint?: string; // for those who read by ear
}

/** DrawnEdge joins two nodes. One with a class has an arrow at its second. */
export interface DrawnEdge {
  from: string;
  to: string;
  class?: string;
}

const width = 176;
const height = 52;
const gap = 28;
const head = 32; // for the names of the layers

/** useLayout has the worker lay out a graph. */
function useLayout(nodes: Drawn[], edges: DrawnEdge[], layers: number[]): { layout?: LayoutAnswer; error: string } {
  const [layout, setLayout] = useState<{ key: string; answer: LayoutAnswer }>();
  const [error, setError] = useState("");
  const layerOf = new Map(nodes.map((n) => [n.id, n.layer]));
  const request: LayoutRequest = {
    nodes: nodes.map((n) => ({ id: n.id, layer: layers.indexOf(n.layer) })),
    // The layout wants edges from the outside in.
    edges: edges.map(({ from, to }) => (layerOf.get(from)! <= layerOf.get(to)! ? { from, to } : { from: to, to: from })),
    width, height, gap,
  };
  const key = JSON.stringify(request);
  useEffect(() => {
    const worker = new Worker("/assets/layout.js");
    worker.onmessage = (e: MessageEvent<LayoutAnswer>) => setLayout({ key, answer: e.data });
    worker.onerror = (e) => setError(e.message);
    worker.postMessage(request);
    return () => worker.terminate();
  }, [key]);
  // While the next layout is made, nothing is drawn at places that are not its own.
  return { layout: layout?.key === key ? layout.answer : undefined, error };
}

export function Picture({ label, nodes, edges, names = layerNames }: { label: string; nodes: Drawn[]; edges: DrawnEdge[]; names?: string[] }) {
  const layers = [...new Set(nodes.map((n) => n.layer))].sort((a, b) => a - b);
  const { layout, error } = useLayout(nodes, edges, layers);
  if (error) return <p class="notice bad" role="alert">The picture cannot be drawn: {error}. The table has the same.</p>;
  if (!layout) return <p class="quiet" role="status">Drawing…</p>;
  return (
    <div class="picture" role="region" aria-label={label} tabIndex={0}>
      <svg width={layout.width + 2} height={layout.height + head + 2} viewBox={`-1 ${-head} ${layout.width + 2} ${layout.height + head + 2}`} role="group" aria-label={label}>
        {layers.map((l, i) => (
          <text key={l} class="layer" x={i * (width + gap)} y={-head + 14}>{names[l]}</text>
        ))}
        {edges.map((e) => <Line key={e.from + " " + e.to} of={e} layout={layout} />)}
        {nodes.map((n) => (
          <Box key={n.id} of={n} x={layout.places[n.id].x} y={layout.places[n.id].y} />
        ))}
      </svg>
    </div>
  );
}

const arrow = 6;

function Line({ of: e, layout }: { of: DrawnEdge; layout: LayoutAnswer }) {
  const [a, b] = [layout.places[e.from], layout.places[e.to]];
  const inward = a.x <= b.x;
  const [x1, y1, x2, y2] = [inward ? a.x + width : a.x, a.y + height / 2, inward ? b.x : b.x + width, b.y + height / 2];
  const mid = (x1 + x2) / 2;
  const back = inward ? -arrow : arrow;
  return (
    <g class={`edge ${e.class ?? ""}`}>
      <path d={`M${x1} ${y1}C${mid} ${y1} ${mid} ${y2} ${x2} ${y2}`} />
      {e.class && <path d={`M${x2 + back} ${y2 - arrow}L${x2} ${y2}L${x2 + back} ${y2 + arrow}`} />}
    </g>
  );
}

function Box({ of: n, x, y }: { of: Drawn; x: number; y: number }) {
  const [first, second] = [clip(n.name, 17), clip(n.detail, 25)];
  const content = (
    <>
      {(first.endsWith("…") || second.endsWith("…")) && <title>{`${n.name}: ${n.detail}`}</title>}
      <rect x={x} y={y} width={width} height={height} rx={8} />
      <text x={x + 12} y={y + (second ? 21 : 31)} class="name">{first}</text>
      {second && <text x={x + 12} y={y + 40} class="detail">{second}</text>}
    </>
  );
  const to = n.to;
  if (!to) return <g class={`node ${n.classes}`}>{content}</g>;
  return (
    <a
      href={to}
      class={`node ${n.classes}`}
      aria-description={n.hint}
      onClick={(e) => {
        if (e.button !== 0 || e.metaKey || e.ctrlKey || e.shiftKey) return;
        e.preventDefault();
        go(to);
      }}
    >
      {content}
    </a>
  );
}

function clip(text: string, most: number): string {
  return text.length > most ? text.slice(0, most - 1) + "…" : text;
}
