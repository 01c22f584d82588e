// The pages of single objects.

import type { ComponentChildren } from "preact";
import type { Group, Host, JoinedHost, Network, Port, PortList, Router, RouterEnd, Rule, Thing } from "../api";
import { Await, count, Empty, Facts, Page, Ref, Scroll, State, time } from "../parts";
import { Measured, useSamples } from "../measured";
import { PortStateOf, PortTable } from "../ports";
import { useLoad } from "../load";
import { address, Link, query } from "../router";
import { isAdmin } from "../session";
import { clock, HostState } from "./hosts";

function Links({ children }: { children: ComponentChildren }) {
  return <p class="pages">{children}</p>;
}

function common(o: Thing): [string, ComponentChildren][] {
  return [
    ["Description", o.description],
    ["Id", <code>{o.id}</code>],
    ["Project", o.project_id && <code>{o.project_id}</code>],
  ];
}

function list(all: ComponentChildren[]): ComponentChildren {
  return all.map((one, i) => <>{i > 0 && ", "}{one}</>);
}

export function PortPage({ id }: { id: string }) {
  const port = useLoad<Port>(`/v1/ports/${encodeURIComponent(id)}`, 15);
  return (
    <Page title={`Port ${port.data?.summary.name ?? ""}`} aside={port.data && <PortStateOf state={port.data.summary.state} />}>
      <Await of={port}>
        {(p) => (
          <>
            <Links>
              <Link to={query("/ask", { from: p.id })}>Would a connection pass?</Link>
              {isAdmin() && <PortLinks of={p} />}
            </Links>
            <Facts
              rows={[
                ["Addresses", p.summary.addresses.join(", ")],
                ["Floating IPs", p.floating_ips.map((f) => f.name).join(", ")],
                ["MAC address", p.mac_address],
                ["Network", <Ref kind="network" id={p.summary.network.id} name={p.summary.network.name} />],
                ...operators(p),
                ["Owner", [p.summary.device_owner, p.device_id].filter(Boolean).join(" ")],
                ["Port security", p.port_security ? "on" : <State mood="warn">off: it may send as any address, and no group filters</State>],
                ...common(p),
              ]}
            />
            <section aria-labelledby="rules">
              <h2 id="rules">Rules in effect</h2>
              {!p.port_security ? (
                <Empty>Port security is off: no rule applies, and everything passes.</Empty>
              ) : p.groups.length === 0 && !p.other_groups ? (
                <Empty>The port is in no security group: there is no rule that lets something pass.</Empty>
              ) : (
                p.groups.map((g) => (
                  <section key={g.id} aria-label={`Group ${g.name}`}>
                    <h3>Group <Ref kind="security group" id={g.id} name={g.name} /></h3>
                    <Rules of={g.rules} group={g.name} />
                  </section>
                ))
              )}
              {p.other_groups && p.port_security && <p class="quiet">It is also in {count(p.other_groups, "group")} of other projects, whose rules are not shown.</p>}
            </section>
          </>
        )}
      </Await>
    </Page>
  );
}

function PortLinks({ of: p }: { of: Port }) {
  return (
    <>
      <Link to={query("/reach", { from: p.id })}>What can it reach?</Link>
      <Link to={query("/reach", { to: p.id })}>What can reach it?</Link>
      <Link to={query("/topology", { scope: p.summary.network.id })}>Show in the topology</Link>
      <Link to={query("/changes", { object: p.id })}>Changes</Link>
      <Link to={query("/flows", { port: p.id })}>Flows</Link>
      <Link to={query("/drops", { port: p.id })}>Drops</Link>
    </>
  );
}

/** operators returns the facts that tenants do not see. */
function operators(p: Port): [string, ComponentChildren][] {
  if (!isAdmin()) return [];
  return [
    ["Host", p.summary.host && <Ref kind="host" id={p.summary.host.id} name={p.summary.host.name} />],
    ["Interface", p.interface],
    ["Router", p.router && <Ref kind="router" id={p.router.id} name={p.router.name} />],
  ];
}

/** OwnPorts lists the ports of the user's project. */
export function OwnPorts() {
  const ports = useLoad<PortList>(query("/v1/ports", { from: address.value.searchParams.get("from") ?? "" }), 15);
  return (
    <Page title="Your ports" aside={ports.at && <span class="quiet">as of {ports.at.toLocaleTimeString("en-GB")}</span>}>
      <Await of={ports}>
        {(l) => (
          <>
            <p class="quiet">The ports of your project's machines. <Link to="/ask">Ask whether a connection would pass</Link></p>
            <PortTable of={l} path="/" />
          </>
        )}
      </Await>
    </Page>
  );
}

function Rules({ of: rules, group }: { of: Rule[]; group: string }) {
  if (rules.length === 0) return <Empty>The group has no rules: it lets nothing pass.</Empty>;
  return (
    <Scroll label={`rules of ${group}`}>
      <table>
        <thead><tr><th>Direction</th><th>Lets pass</th><th>Ports</th><th>From or to</th><th>Description</th></tr></thead>
        <tbody>
          {rules.map((r) => (
            <tr key={r.id}>
              <th scope="row">{r.direction === "ingress" ? "in" : "out"}</th>
              <td>{r.ethertype} {r.protocol || "all"}</td>
              <td>{r.ports || "all"}</td>
              <td>{r.remote_group ? <>members of <Ref kind="security group" id={r.remote_group.id} name={r.remote_group.name} /></> : r.remote || "everywhere"}</td>
              <td>{r.description}</td>
            </tr>
          ))}
        </tbody>
      </table>
    </Scroll>
  );
}

export function NetworkPage({ id }: { id: string }) {
  const path = `/networks/${encodeURIComponent(id)}`;
  const network = useLoad<Network>(query(`/v1${path}`, { from: address.value.searchParams.get("from") ?? "" }), 15);
  return (
    <Page title={`Network ${network.data?.name ?? ""}`} aside={network.data && !network.data.admin_up && <State mood="none">switched off</State>}>
      <Await of={network}>
        {(n) => (
          <>
            <Links>
              <Link to={query("/topology", { scope: n.id })}>Show in the topology</Link>
              <Link to={query("/changes", { object: n.id })}>Changes</Link>
              <Link to={query("/flows", { network: n.id })}>Flows</Link>
            </Links>
            <Facts
              rows={[
                ["Type", [n.type, n.segmentation_id].filter((x) => x !== null && x !== "").join(" ")],
                ["Physical network", n.physical_network],
                ["External", n.external ? "yes" : "no"],
                ["MTU", `${n.mtu} bytes`],
                ["Routers", n.routers.length > 0 && list(n.routers.map((r) => <Ref kind="router" id={r.id} name={r.name} />))],
                ...common(n),
              ]}
            />
            <section aria-labelledby="subnets">
              <h2 id="subnets">Subnets</h2>
              {n.subnets.length === 0 ? (
                <Empty>It has no subnet, so its ports get no addresses.</Empty>
              ) : (
                <Scroll label="subnets">
                  <table>
                    <thead><tr><th>Name</th><th>Range</th><th>Gateway</th><th>DHCP</th></tr></thead>
                    <tbody>
                      {n.subnets.map((s) => (
                        <tr key={s.id}>
                          <th scope="row">{s.name || s.id.slice(0, 8)}</th>
                          <td>{s.cidr}</td>
                          <td>{s.gateway ?? "none"}</td>
                          <td>{s.dhcp ? "on" : "off"}</td>
                        </tr>
                      ))}
                    </tbody>
                  </table>
                </Scroll>
              )}
            </section>
            <PortTable of={n} path={path} />
          </>
        )}
      </Await>
    </Page>
  );
}

export function RouterPage({ id }: { id: string }) {
  const router = useLoad<Router>(`/v1/routers/${encodeURIComponent(id)}`, 15);
  return (
    <Page title={`Router ${router.data?.name ?? ""}`} aside={router.data && !router.data.admin_up && <State mood="none">switched off</State>}>
      <Await of={router}>
        {(r) => (
          <>
            <Links><Link to={query("/topology", { scope: r.id })}>Show in the topology</Link></Links>
            <Facts rows={common(r)} />
            <Ends title="Ways out" of={r.gateways} none="It has no external gateway: what is behind it reaches nothing outside." />
            <Ends title="Networks" of={r.interfaces} none="It is on no network." />
            {r.routes.length > 0 && (
              <section aria-labelledby="routes">
                <h2 id="routes">Extra routes</h2>
                <Scroll label="extra routes">
                  <table>
                    <thead><tr><th>To</th><th>By</th></tr></thead>
                    <tbody>{r.routes.map((x) => <tr key={x.destination + x.nexthop}><th scope="row">{x.destination}</th><td>{x.nexthop}</td></tr>)}</tbody>
                  </table>
                </Scroll>
              </section>
            )}
            {r.floating_ips.length > 0 && (
              <section aria-labelledby="floating">
                <h2 id="floating">Floating IPs</h2>
                <Scroll label="floating IPs">
                  <table>
                    <thead><tr><th>Address</th><th>Port</th></tr></thead>
                    <tbody>
                      {r.floating_ips.map((f) => (
                        <tr key={f.address}><th scope="row">{f.address}</th><td>{f.port ? <Ref kind="port" id={f.port.id} name={f.port.name} /> : "forwarded"}</td></tr>
                      ))}
                    </tbody>
                  </table>
                </Scroll>
              </section>
            )}
          </>
        )}
      </Await>
    </Page>
  );
}

function Ends({ title, of: ends, none }: { title: string; of: RouterEnd[]; none: string }) {
  const id = title.replace(" ", "-").toLowerCase();
  return (
    <section aria-labelledby={id}>
      <h2 id={id}>{title}</h2>
      {ends.length === 0 ? (
        <Empty>{none}</Empty>
      ) : (
        <Scroll label={title.toLowerCase()}>
          <table>
            <thead><tr><th>Network</th><th>Addresses</th><th>Port</th><th>Source NAT</th></tr></thead>
            <tbody>
              {ends.map((e) => (
                <tr key={e.port.id}>
                  <th scope="row"><Ref kind="network" id={e.network.id} name={e.network.name} /></th>
                  <td>{e.addresses.join(", ")}</td>
                  <td><Ref kind="port" id={e.port.id} name={e.port.name} /></td>
                  <td>{e.snat ? "yes" : "no"}</td>
                </tr>
              ))}
            </tbody>
          </table>
        </Scroll>
      )}
    </section>
  );
}

export function GroupPage({ id }: { id: string }) {
  const path = `/groups/${encodeURIComponent(id)}`;
  const group = useLoad<Group & PortList>(query(`/v1${path}`, { from: address.value.searchParams.get("from") ?? "" }), 15);
  return (
    <Page title={`Security group ${group.data?.name ?? ""}`}>
      <Await of={group}>
        {(g) => (
          <>
            <Facts rows={[["Answers pass", g.stateful ? "by themselves: the group is stateful" : "only by a rule: the group is stateless"], ...common(g)]} />
            <section aria-labelledby="rules">
              <h2 id="rules">Rules</h2>
              <Rules of={g.rules} group={g.name} />
            </section>
            <PortTable of={g} path={path} title="Ports in it" />
          </>
        )}
      </Await>
    </Page>
  );
}

export function HostPage({ id }: { id: string }) {
  const joined = useLoad<{ host: JoinedHost }>(`/v1/hosts/${encodeURIComponent(id)}`);
  const status = useLoad<{ hosts: Host[] }>("/v1/status", 15);
  const h = status.data?.hosts.find((x) => x.id === joined.data?.host.id);
  const fills = useSamples(h?.tables?.length ? { time: status.at!.getTime() / 1000, values: Object.fromEntries(h.tables.map((t) => [t.name, (t.used * 100) / Math.max(t.max, 1)])) } : undefined);
  return (
    <Page title={`Host ${joined.data?.host.name ?? ""}`} aside={h && <HostState of={h} />}>
      <Await of={joined}>
        {({ host: j }) => (
          <>
            <Facts
              rows={[
                ["Tunnel address", j.tunnel_ip],
                ["MTU of the underlay", j.mtu ? `${j.mtu} bytes` : ""],
                ["Roles", j.roles.join(", ")],
                ["Joined", j.joined_at && time(j.joined_at)],
                ["Agent started", j.started_at && time(j.started_at)],
                ["Id", <code>{j.id}</code>],
              ]}
            />
            <Await of={status}>
              {() =>
                h ? (
                  <section aria-labelledby="report">
                    <h2 id="report">What its agent reports</h2>
                    {h.answered ? (
                      <Facts
                        rows={[
                          ["Version", h.version],
                          ["Ports bound to it", h.ports],
                          ["Tunnels to other hosts", h.tunnels],
                          ["Clock", clock(h)],
                          ["Certificate until", h.certificateEnd && time(h.certificateEnd)],
                          ["Faults", (h.faults ?? []).join("; ")],
                        ]}
                      />
                    ) : (
                      <Empty>{h.alive ? "Its agent does not report." : "The host is down: nothing is reported."}</Empty>
                    )}
                  </section>
                ) : null
              }
            </Await>
            {fills.length > 0 && (
              <section aria-labelledby="fills">
                <h2 id="fills">How full its tables are</h2>
                <Measured label="How full its tables are" of={fills} unit=" %" max={100} />
              </section>
            )}
          </>
        )}
      </Await>
    </Page>
  );
}
