// A worker that lays out the picture of the topology: layers from left to right, and within a layer
// an order with few crossings. The same graph always gets the same places.

import dagre from "@dagrejs/dagre";

export interface LayoutRequest {
  nodes: { id: string; layer: number }[];
  edges: { from: string; to: string }[];
  width: number; // of a node
  height: number;
  gap: number; // between layers
}

export interface Place {
  x: number; // of the left upper corner
  y: number;
}

export interface LayoutAnswer {
  places: Record<string, Place>;
  width: number;
  height: number;
}

// An invisible node that keeps those without a neighbour further outside in their layer.
const root = "/";

function layOut(r: LayoutRequest): LayoutAnswer {
  const g = new dagre.graphlib.Graph();
  g.setGraph({ rankdir: "LR", nodesep: 12, ranksep: r.gap });
  g.setDefaultEdgeLabel(() => ({}));
  g.setNode(root, { width: 0, height: 0 });
  const layers = new Map(r.nodes.map((n) => [n.id, n.layer]));
  for (const n of r.nodes) g.setNode(n.id, { width: r.width, height: r.height });
  const inner = new Set<string>();
  for (const e of r.edges) {
    inner.add(e.to);
    g.setEdge(e.from, e.to, { minlen: Math.max(1, layers.get(e.to)! - layers.get(e.from)!) });
  }
  for (const n of r.nodes) if (!inner.has(n.id)) g.setEdge(root, n.id, { minlen: n.layer + 1, weight: 0 });
  dagre.layout(g);
  const answer: LayoutAnswer = { places: {}, width: 0, height: 0 };
  const top = Math.min(...r.nodes.map((n) => g.node(n.id).y)) - r.height / 2;
  for (const n of r.nodes) {
    const place = { x: n.layer * (r.width + r.gap), y: g.node(n.id).y - r.height / 2 - top };
    answer.places[n.id] = place;
    answer.width = Math.max(answer.width, place.x + r.width);
    answer.height = Math.max(answer.height, place.y + r.height);
  }
  sortAlike(r, answer.places);
  return answer;
}

/** sortAlike gives nodes with the same neighbours their places in the order of the request. */
function sortAlike(r: LayoutRequest, places: Record<string, Place>) {
  const neighbours = new Map<string, string[]>(r.nodes.map((n) => [n.id, []]));
  for (const e of r.edges) {
    neighbours.get(e.from)!.push(e.to);
    neighbours.get(e.to)!.push(e.from);
  }
  const alike = new Map<string, string[]>();
  for (const n of r.nodes) {
    const key = [n.layer, ...neighbours.get(n.id)!.sort()].join("\n");
    alike.set(key, [...(alike.get(key) ?? []), n.id]);
  }
  for (const ids of alike.values()) {
    const ys = ids.map((id) => places[id].y).sort((a, b) => a - b);
    ids.forEach((id, i) => (places[id].y = ys[i]));
  }
}

onmessage = (e: MessageEvent<LayoutRequest>) => postMessage(layOut(e.data));
