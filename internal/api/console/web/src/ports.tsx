// Ports and their states, in lists and in words.

import type { PortList, PortState, PortStates } from "./api";
import { Empty, type Mood, Ref, Scroll, State } from "./parts";
import { Link } from "./router";
import { isAdmin } from "./session";

const states: Record<PortState, { mood: Mood; text: string }> = {
  active: { mood: "good", text: "active" },
  down: { mood: "bad", text: "down" },
  unbound: { mood: "none", text: "on no host" },
  off: { mood: "none", text: "switched off" },
  routed: { mood: "none", text: "routed" },
};

export function stateText(s: PortState): string {
  return states[s]?.text ?? s;
}

export function PortStateOf({ state }: { state: PortState }) {
  const s = states[state] ?? { mood: "none", text: state };
  return <State mood={s.mood}>{s.text}</State>;
}

/** countsOf says how many ports are in each state. */
export function countsOf(p: PortStates): string {
  return (Object.keys(states) as PortState[])
    .filter((s) => p[s] > 0)
    .map((s) => `${p[s]} ${states[s].text}`)
    .join(", ");
}

export function PortTable({ of: list, path, title = "Ports" }: { of: PortList; path: string; title?: string }) {
  const next = list.from + list.ports.length;
  return (
    <section aria-labelledby="ports">
      <h2 id="ports">{title} <span class="quiet">{list.total}</span></h2>
      {list.ports.length === 0 ? (
        <Empty>{list.total === 0 ? "There are no ports." : "There are no more ports."}</Empty>
      ) : (
        <Scroll label="ports">
          <table>
            <thead><tr><th>Name</th><th>State</th><th>Addresses</th><th>Network</th>{isAdmin() && <th>Host</th>}<th>Owner</th></tr></thead>
            <tbody>
              {list.ports.map((p) => (
                <tr key={p.id}>
                  <th scope="row"><Ref kind="port" id={p.id} name={p.name} /></th>
                  <td><PortStateOf state={p.state} /></td>
                  <td>{p.addresses.join(", ")}</td>
                  <td><Ref kind="network" id={p.network.id} name={p.network.name} /></td>
                  {isAdmin() && <td>{p.host && <Ref kind="host" id={p.host.id} name={p.host.name} />}</td>}
                  <td>{p.device_owner}</td>
                </tr>
              ))}
            </tbody>
          </table>
        </Scroll>
      )}
      {(list.from > 0 || next < list.total) && (
        <p class="pages">
          {list.from > 0 && <Link to={path}>First ports</Link>}
          {next < list.total && <Link to={`${path}?from=${next}`}>Next ports, from {next + 1}</Link>}
        </p>
      )}
    </section>
  );
}
