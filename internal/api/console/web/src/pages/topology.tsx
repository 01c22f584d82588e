import type { Kind, Node, Topology as Graph } from "../api";
import { Await, count, Empty, Page, pathOf as pageOf, Ref, Scroll, State, Switch } from "../parts";
import { type Drawn, layerNames, Picture } from "../picture";
import { countsOf, PortStateOf, stateText } from "../ports";
import { useLoad } from "../load";
import { address, go, Link, query } from "../router";

// Layers, from the outside in.
const layerOf: Record<Kind, number> = { outside: 0, uplink: 1, external: 2, router: 3, project: 4, network: 4, ports: 5, port: 5 };
const foldedNames = layerNames.with(4, "Projects");
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
              <Switch label="View" of={shown.table ? "table" : "picture"} choices={{ picture: "Picture", table: "Table" }} choose={(v) => go(pathOf({ ...shown, table: v === "table" }), true)} />
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
              <Picture label="Topology" nodes={g.nodes.map((n) => drawn(n, shown))} edges={g.edges} names={g.folded ? foldedNames : layerNames} />
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
  return kind && pageOf(kind, n.id);
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

/** drawn returns a node as the picture shows it. */
function drawn(n: Node, shown: Shown): Drawn {
  const sign = isBad(n) ? "✕ " : n.state === "active" ? "✓ " : "";
  return {
    id: n.id,
    layer: layerOf[n.kind],
    name: sign + nameOf(n),
    detail: n.state && n.state !== "active" ? stateText(n.state) : summary(n),
    classes: `${n.kind}${isBad(n) ? " bad" : ""}`,
    to: targetOf(n, shown),
    hint: n.kind === "ports" ? `${kindNames[n.kind]}; shows ${Math.min(step, n.ports!.total)} more one by one` : kindNames[n.kind],
  };
}
