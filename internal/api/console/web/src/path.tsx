// The path of a packet, drawn on the layers of the virtual network.

import { useState } from "preact/hooks";
import type { Step } from "./answers";
import type { End, Leg, Name } from "./api";
import { pathOf, Scroll, State, Switch } from "./parts";
import { type Drawn, type DrawnEdge, layerNames, Picture } from "./picture";
import { Link } from "./router";
import { Words } from "./words";

/** Hop is a device on the path. */
interface Hop {
  id: string;
  layer: number;
  kind: "outside" | "uplink" | "external" | "router" | "network" | "port";
  name: string;
  link?: string;
  does: string[]; // what happens to the packet there
  fate: "passed" | "dropped" | "missed"; // missed: it did not come so far
  code?: string;
}

const layerOf = { outside: 0, uplink: 1, external: 2, router: 3, network: 4, port: 5 } as const;
// Kinds of steps that are about the state of a device elsewhere, while the packet stays.
const inPlace = ["connection", "learn"];
const lan = /^LAN (.*) of network$/;

/** mostHops bounds the picture. */
const mostHops = 300;

type Ends = Record<"from" | "to", End>;

/** hopsOf returns the devices that a packet passes, in order, and the end that it has not reached. */
function hopsOf(leg: Leg, names: Record<string, Name>, { from, to }: Ends): Hop[] {
  const hops: Hop[] = [endOf(from)];
  let atGateway = false;
  for (const step of leg.trace.walk ?? []) {
    const device = deviceOf(step, names);
    let last = hops[hops.length - 1];
    if (device === "gateway") {
      // The network at this end of the router is the one that leads outside.
      if (last.kind === "network") outer(last);
      else atGateway = true;
    } else if (device && device.id !== last.id) {
      if (device.kind === "network" && atGateway) {
        outer(device);
        atGateway = false;
      }
      last = device;
      hops.push(last);
    }
    last.does.push(step.text);
    if (step.code && !leg.allowed) {
      last.fate = "dropped";
      last.code = step.code;
      break; // what follows is how the network answers
    }
  }
  const reached = hops[hops.length - 1];
  if (reached.id !== endOf(to).id) hops.push({ ...endOf(to), fate: leg.allowed ? "passed" : "missed" });
  return hops.slice(0, mostHops);
}

function endOf(e: End): Hop {
  if (!e.port) return { id: "outside", layer: layerOf.outside, kind: "outside", name: e.address, does: [], fate: "passed" };
  return hop("port", e.port, e.name || e.address);
}

function hop(kind: Hop["kind"], id: string, name: string): Hop {
  return { id, kind, layer: layerOf[kind], name: name || id.slice(0, 8), link: pathOf(kind, id), does: [], fate: "passed" };
}

function outer(h: Hop) {
  h.kind = "external";
  h.layer = layerOf.external;
}

/** deviceOf returns the device of a step; undefined: it is a part of the one before. */
function deviceOf(step: Step, names: Record<string, Name>): Hop | "gateway" | undefined {
  if (inPlace.includes(step.kind ?? "")) return undefined;
  const named = step.device ? names[step.device] : undefined;
  const kind = named?.kind ?? step.object?.kind ?? "";
  const id = named ? step.device : (step.object?.id ?? "");
  const name = named?.name ?? step.object?.name ?? "";
  if (kind === "gateway") return "gateway";
  if (kind === "port" || kind === "network" || kind === "router") {
    const own = hop(kind, id || `${kind} of another project`, name);
    return id ? own : { ...own, link: undefined };
  }
  const uplink = lan.exec(kind);
  return uplink ? hop("uplink", step.device, uplink[1]) : undefined;
}

/** drawing returns the picture of hops, of which some may be passed more than once. */
function drawing(hops: Hop[]): { nodes: Drawn[]; edges: DrawnEdge[] } {
  const nodes = new Map<string, Drawn>();
  const edges = new Map<string, DrawnEdge>();
  hops.forEach((h, i) => {
    const sign = { passed: "✓ ", dropped: "✕ ", missed: "" }[h.fate];
    const detail = { passed: i === 0 ? "from here" : i === hops.length - 1 ? "arrives" : "", dropped: h.code ?? "dropped", missed: "not reached" }[h.fate];
    const before = nodes.get(h.id);
    if (!before || h.fate === "dropped") {
      nodes.set(h.id, { id: h.id, layer: h.layer, name: sign + h.name, detail: detail || h.kind, classes: `${h.kind} ${h.fate}${h.fate === "dropped" ? " bad" : ""}`, to: h.link, hint: h.kind });
    }
    if (i > 0 && h.fate !== "missed") edges.set(`${hops[i - 1].id} ${h.id}`, { from: hops[i - 1].id, to: h.id, class: "passed" });
  });
  return { nodes: [...nodes.values()], edges: [...edges.values()].filter((e) => e.from !== e.to) };
}

const fates = { passed: { mood: "good", text: "passes" }, dropped: { mood: "bad", text: "dropped" }, missed: { mood: "none", text: "not reached" } } as const;

/** PathOf shows the path of a packet as a picture or a table. */
export function PathOf({ leg, names, from, to, title }: Ends & { leg: Leg; names: Record<string, Name>; title: string }) {
  const [view, setView] = useState<"picture" | "table">(innerWidth < 720 ? "table" : "picture");
  const hops = hopsOf(leg, names, { from, to });
  return (
    <>
      <Switch label={`Path ${title.toLowerCase()}`} of={view} choices={{ picture: "Picture", table: "Table" }} choose={setView} />
      {view === "picture" ? (
        <Picture label={`Path ${title.toLowerCase()}`} {...drawing(hops)} />
      ) : (
        <Scroll label={`the path ${title.toLowerCase()}`}>
          <table>
            <thead><tr><th class="number">Hop</th><th>Layer</th><th>Name</th><th>Packet</th><th>What happens</th></tr></thead>
            <tbody>
              {hops.map((h, i) => (
                <tr key={i}>
                  <td class="number">{i + 1}</td>
                  <td>{layerNames[h.layer]}</td>
                  <th scope="row">{h.link ? <Link to={h.link}>{h.name}</Link> : h.name}</th>
                  <td><State mood={fates[h.fate].mood}>{fates[h.fate].text}</State> {h.code && <code>{h.code}</code>}</td>
                  <td><Words text={h.does.join("; ")} names={names} /></td>
                </tr>
              ))}
            </tbody>
          </table>
        </Scroll>
      )}
    </>
  );
}
