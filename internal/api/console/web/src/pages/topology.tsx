import { useEffect, useState } from "preact/hooks";
import type { Kind, Node, Topology as Graph } from "../api";
import type { LayoutAnswer, LayoutRequest } from "../layout";
import { Await, count, Empty, Page, paths, Ref, Scroll, State } from "../parts";
import { countsOf, PortStateOf, stateText } from "../ports";
import { useLoad } from "../load";
import { address, go, Link, query } from "../router";

// Layers, from the outside in.
const layerOf: Record<Kind, number> = { outside: 0, uplink: 1, external: 2, router: 3, project: 4, network: 4, ports: 5, port: 5 };
const layerNames = ["Outside", "Uplinks", "External networks", "Routers", "Networks", "Ports"];
const kindNames: Record<Kind, string> = {
  outside: "outside", uplink: "physical network", external: "external network", router: "router", network: "network", project: "project", ports: "ports", port: "port",
};
const linkKinds: Partial<Record<Kind, string>> = { external: "network", network: "network", router: "router", port: "port" };

const step = 20;

interface Shown {
  scope: string;
  expand: string[]; // NETWORK:COUNT
  table: boolean;
}

function shownBy(url: URL): Shown {
  const view = url.searchParams.get("view");
  return {
    scope: url.searchParams.get("scope") ?? "",
    expand: url.searchParams.getAll("expand"),
    table: view === "table" || (view !== "picture" && innerWidth < 720),
  };
}

function pathOf(s: Shown): string {
  return query("/topology", { scope: s.scope, expand: s.expand, view: s.table ? "table" : "picture" });
}

/** expanded returns the address that shows more ports of a network one by one. */
function expanded(s: Shown, network: string): string {
  const before = s.expand.find((e) => e.split(":")[0] === network);
  const n = before ? Number(before.split(":")[1] ?? step) + step : step;
  return pathOf({ ...s, expand: [...s.expand.filter((e) => e !== before), `${network}:${n}`] });
}

export function Topology() {
  const shown = shownBy(address.value);
  const graph = useLoad<Graph>(query("/v1/topology", { scope: shown.scope, expand: shown.expand }), 15);
  return (
    <Page title="Topology" wide aside={graph.at && <span class="quiet">as of {graph.at.toLocaleTimeString("en-GB")}</span>}>
      <Await of={graph}>
        {(g) => (
          <>
            <div class="choices">
              <div role="group" aria-label="View" class="switch">
                <button type="button" class="small" aria-pressed={!shown.table} onClick={() => go(pathOf({ ...shown, table: false }), true)}>Picture</button>
                <button type="button" class="small" aria-pressed={shown.table} onClick={() => go(pathOf({ ...shown, table: true }), true)}>Table</button>
              </div>
              {(shown.scope || shown.expand.length > 0) && <Link to={pathOf({ ...shown, scope: "", expand: [] })}>Show all</Link>}
              <p class="quiet">
                {shown.scope && "One object or project, and what is one router away. "}
                {g.folded && "There is more than a picture can show: each project is one node. "}
                {g.left_out > 0 && `Left out: ${count(g.left_out, "node")}. Search, or choose a project. `}
              </p>
            </div>
            {g.nodes.length === 0 ? (
              <Empty>
                <p>There are no networks yet.</p>
                <p><code>heddle net create NAME</code> makes one.</p>
              </Empty>
            ) : shown.table ? (
              <Table of={g} shown={shown} />
            ) : (
              <Picture of={g} shown={shown} />
            )}
          </>
        )}
      </Await>
    </Page>
  );
}

/** summary says in words what a node's second line shows. */
function summary(n: Node): string {
  if (n.kind === "project") return `${count(n.networks ?? 0, "network")}, ${count(n.routers ?? 0, "router")}`;
  if (n.ports) return countsOf(n.ports);
  return n.detail ?? "";
}

function nameOf(n: Node): string {
  if (n.kind === "ports") return count(n.ports!.total, "port");
  if (n.kind === "project") return `project ${n.name.slice(0, 8)}`;
  return n.name || n.id.slice(0, 8);
}

/** targetOf returns where a node leads. */
function targetOf(n: Node, shown: Shown): string | undefined {
  if (n.kind === "ports") return expanded(shown, n.id.split("/")[0]);
  if (n.kind === "project") return pathOf({ ...shown, scope: n.id });
  const kind = linkKinds[n.kind];
  return kind && paths[kind] + encodeURIComponent(n.id);
}

const isBad = (n: Node) => n.state === "down" || (n.ports?.down ?? 0) > 0;

function Table({ of: g, shown }: { of: Graph; shown: Shown }) {
  const nodes = new Map(g.nodes.map((n) => [n.id, n]));
  const outer = new Map<string, Node[]>();
  for (const e of g.edges) outer.set(e.to, [...(outer.get(e.to) ?? []), nodes.get(e.from)!]);
  return (
    <Scroll label="the topology">
      <table>
        <thead><tr><th>Kind</th><th>Name</th><th>Below</th><th>Details</th><th>State</th></tr></thead>
        <tbody>
          {g.nodes.map((n) => (
            <tr key={n.id}>
              <td>{kindNames[n.kind]}</td>
              <th scope="row"><NodeName of={n} shown={shown} /></th>
              <td>{(outer.get(n.id) ?? []).map((o, i) => <span key={o.id}>{i > 0 && ", "}{nameOf(o)}</span>)}</td>
              <td>{summary(n)}</td>
              <td>{n.state ? <PortStateOf state={n.state} /> : isBad(n) ? <State mood="bad">{n.ports!.down} down</State> : ""}</td>
            </tr>
          ))}
        </tbody>
      </table>
    </Scroll>
  );
}

function NodeName({ of: n, shown }: { of: Node; shown: Shown }) {
  const kind = linkKinds[n.kind];
  if (kind) return <Ref kind={kind} id={n.id} name={n.name} />;
  const to = targetOf(n, shown);
  return to ? <Link to={to}>{n.kind === "ports" ? `Show ${Math.min(step, n.ports!.total)} of ${nameOf(n)}` : nameOf(n)}</Link> : <>{nameOf(n)}</>;
}

const width = 176;
const height = 52;
const gap = 28;
const head = 32; // for the names of the layers

/** useLayout has the worker lay out a graph. */
function useLayout(g: Graph): { layout?: LayoutAnswer; layers: number[]; error: string } {
  const [layout, setLayout] = useState<{ key: string; answer: LayoutAnswer }>();
  const [error, setError] = useState("");
  const layers = [...new Set(g.nodes.map((n) => layerOf[n.kind]))].sort((a, b) => a - b);
  const request: LayoutRequest = {
    nodes: g.nodes.map((n) => ({ id: n.id, layer: layers.indexOf(layerOf[n.kind]) })),
    edges: g.edges,
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
  return { layout: layout?.key === key ? layout.answer : undefined, layers, error };
}

function Picture({ of: g, shown }: { of: Graph; shown: Shown }) {
  const { layout, layers, error } = useLayout(g);
  if (error) return <p class="notice bad" role="alert">The picture cannot be drawn: {error}. The table has the same.</p>;
  if (!layout) return <p class="quiet" role="status">Drawing…</p>;
  return (
    <div class="picture" role="region" aria-label="Picture of the topology" tabIndex={0}>
      <svg width={layout.width + 2} height={layout.height + head + 2} viewBox={`-1 ${-head} ${layout.width + 2} ${layout.height + head + 2}`} role="group" aria-label="Topology">
        {layers.map((l, i) => (
          <text key={l} class="layer" x={i * (width + gap)} y={-head + 14}>{l === 4 && g.folded ? "Projects" : layerNames[l]}</text>
        ))}
        {g.edges.map((e) => {
          const a = layout.places[e.from];
          const b = layout.places[e.to];
          const [x1, y1, x2, y2] = [a.x + width, a.y + height / 2, b.x, b.y + height / 2];
          const mid = (x1 + x2) / 2;
          return <path key={e.from + " " + e.to} class="edge" d={`M${x1} ${y1}C${mid} ${y1} ${mid} ${y2} ${x2} ${y2}`} />;
        })}
        {g.nodes.map((n) => (
          <Box key={n.id} of={n} x={layout.places[n.id].x} y={layout.places[n.id].y} to={targetOf(n, shown)} />
        ))}
      </svg>
    </div>
  );
}

function Box({ of: n, x, y, to }: { of: Node; x: number; y: number; to?: string }) {
  const sign = isBad(n) ? "✕ " : n.state === "active" ? "✓ " : "";
  const detail = n.state && n.state !== "active" ? stateText(n.state) : summary(n);
  const hint = n.kind === "ports" ? `${kindNames[n.kind]}; shows ${Math.min(step, n.ports!.total)} more one by one` : kindNames[n.kind];
  const [first, second] = [clip(sign + nameOf(n), 17), clip(detail, 25)];
  const content = (
    <>
      {(first.endsWith("…") || second.endsWith("…")) && <title>{`${nameOf(n)}: ${detail}`}</title>}
      <rect x={x} y={y} width={width} height={height} rx={8} />
      <text x={x + 12} y={y + (second ? 21 : 31)} class="name">{first}</text>
      {second && <text x={x + 12} y={y + 40} class="detail">{second}</text>}
    </>
  );
  const classes = `node ${n.kind}${isBad(n) ? " bad" : ""}`;
  if (!to) return <g class={classes}>{content}</g>;
  return (
    <a
      href={to}
      class={classes}
      aria-description={hint}
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
