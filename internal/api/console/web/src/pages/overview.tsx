import type { Health } from "../api";
import { DropRates } from "../drop_rates";
import { Await, count, date, Empty, Page, Scroll, State, time } from "../parts";
import { useLoad } from "../load";
import { Link } from "../router";

export function Overview() {
  const health = useLoad<Health>("/v1/health", 15);
  return (
    <Page title="Overview" aside={health.at && <span class="quiet">as of {health.at.toLocaleTimeString("en-GB")}</span>}>
      <Await of={health}>
        {(h) => (
          <>
            <Problems of={h} />
            <Counts of={h} />
            <DropRates />
            <Servers of={h} />
            <Certificates of={h} />
          </>
        )}
      </Await>
    </Page>
  );
}

function Problems({ of: h }: { of: Health }) {
  if (h.problems.length === 0) {
    return (
      <section class="verdict good" aria-labelledby="problems">
        <h2 id="problems"><State mood="good">Nothing is wrong</State></h2>
        <p>Servers, store, hosts and ports are as they should be.</p>
      </section>
    );
  }
  return (
    <section aria-labelledby="problems">
      <h2 id="problems"><State mood="bad">{count(h.problems.length, "problem")}</State></h2>
      <ol class="problems">
        {h.problems.map((p) => (
          <li key={p.what}>
            <p class="what">{p.what}</p>
            <p class="fix"><strong>Next:</strong> {p.fix}</p>
          </li>
        ))}
      </ol>
    </section>
  );
}

function Counts({ of: h }: { of: Health }) {
  const down = h.hosts.total - h.hosts.alive;
  const p = h.ports;
  return (
    <section aria-label="Counts" class="cards">
      <Card title="Servers" value={count(h.servers.length, "server")}>
        {h.servers.map((s) => s.name).join(", ")}
      </Card>
      <Card title="Hosts" value={`${h.hosts.alive} of ${h.hosts.total} up`}>
        {h.hosts.total === 0 ? "none has joined" : down === 0 ? <State mood="good">all are up</State> : <State mood="bad">{count(down, "host")} down</State>}
        {h.hosts.total > 0 && <Link to="/hosts">Show hosts</Link>}
      </Card>
      <Card title="Ports" value={`${p.active} of ${p.bound} active`}>
        {p.bound === 0 ? "none is bound to a host" : p.down + p.failing === 0 ? <State mood="good">all are active</State> : <State mood="bad">{`${p.down} down, ${p.failing} failing`}</State>}
        {p.binding_failed > 0 && <State mood="bad">{p.binding_failed} bound to no host</State>}
      </Card>
      <Card title="Store" value={`revision ${h.revision}`}>
        {h.store.members.map((m) => (
          <span key={m.name}>
            {m.name}: {mebibytes(m.size)} of {mebibytes(m.quota)} MiB{m.leader && h.store.members.length > 1 ? ", the leader" : ""}
          </span>
        ))}
      </Card>
    </section>
  );
}

function mebibytes(bytes: number): string {
  return Math.floor(bytes / 2 ** 20).toLocaleString("en");
}

function Card({ title, value, children }: { title: string; value: string; children: preact.ComponentChildren }) {
  return (
    <div class="card">
      <h2>{title}</h2>
      <p class="value">{value}</p>
      <div class="more">{children}</div>
    </div>
  );
}

function Servers({ of: h }: { of: Health }) {
  return (
    <section aria-labelledby="servers">
      <h2 id="servers">Servers</h2>
      {h.servers.length === 0 ? (
        <Empty>No server has reported yet.</Empty>
      ) : (
        <Scroll label="servers">
          <table>
            <thead><tr><th>Name</th><th>Role</th><th>Version</th><th>Up since</th></tr></thead>
            <tbody>
              {h.servers.map((s) => (
                <tr key={s.name + s.role + s.started_at}>
                  <th scope="row">{s.name}</th>
                  <td>{s.role}</td>
                  <td>{s.version}</td>
                  <td>{time(s.started_at)}</td>
                </tr>
              ))}
            </tbody>
          </table>
        </Scroll>
      )}
    </section>
  );
}

function Certificates({ of: h }: { of: Health }) {
  if (h.certificates.length === 0) return null;
  return (
    <section aria-labelledby="certificates">
      <h2 id="certificates">Certificates</h2>
      <Scroll label="certificates">
        <table>
          <thead><tr><th>Of</th><th>Ends</th><th>Renewed</th></tr></thead>
          <tbody>
            {h.certificates.map((c) => (
              <tr key={c.name}>
                <th scope="row">{c.name}</th>
                <td>{date(c.end)}</td>
                <td>{c.renewed ? "by Heddle" : "by you"}</td>
              </tr>
            ))}
          </tbody>
        </table>
      </Scroll>
    </section>
  );
}
