import type { Host } from "../api";
import { Await, count, date, Empty, Page, Ref, Scroll, State } from "../parts";
import { useLoad } from "../load";

export function Hosts() {
  const status = useLoad<{ hosts: Host[] }>("/v1/status", 15);
  return (
    <Page title="Hosts" aside={status.at && <span class="quiet">as of {status.at.toLocaleTimeString("en-GB")}</span>}>
      <Await of={status}>
        {({ hosts }) =>
          hosts.length === 0 ? (
            <Empty>
              <p>No host has joined yet.</p>
              <p><code>heddle host token NAME</code> prints a token, with which <code>heddle agent --join-file FILE</code> joins on the host.</p>
            </Empty>
          ) : (
            <HostTable hosts={hosts} />
          )
        }
      </Await>
    </Page>
  );
}

export function HostState({ of: h }: { of: Host }) {
  if (h.cut_off) return <State mood="bad">cut off: {h.cut_off}</State>;
  if (!h.alive) return <State mood="bad">down</State>;
  if (h.overlay && !h.answered) return <State mood="warn">up, does not report</State>;
  return <State mood="good">up</State>;
}

export function clock(h: Host): string {
  if (!h.answered) return "";
  return h.ahead_ms === undefined ? "right" : `${h.ahead_ms > 0 ? "+" : ""}${(h.ahead_ms / 1000).toFixed(1)} s`;
}

function HostTable({ hosts }: { hosts: Host[] }) {
  return (
    <>
      <p class="quiet">{count(hosts.length, "host")}, {hosts.filter((h) => h.alive).length} up</p>
      <Scroll label="hosts">
        <table>
          <thead>
            <tr>
              <th>Name</th><th>State</th><th>Version</th><th class="number">Ports</th><th class="number">Tunnels</th><th>Clock</th><th>Certificate until</th><th>Tables</th>
            </tr>
          </thead>
          <tbody>
            {hosts.map((h) => (
              <tr key={h.id}>
                <th scope="row"><Ref kind="host" id={h.id} name={h.name} /></th>
                <td><HostState of={h} /></td>
                <td>{h.version}</td>
                <td class="number">{h.ports}</td>
                <td class="number">{h.tunnels}</td>
                <td>{clock(h)}</td>
                <td>{h.certificateEnd ? date(h.certificateEnd) : ""}</td>
                <td><Fills of={h} /></td>
              </tr>
            ))}
          </tbody>
        </table>
      </Scroll>
    </>
  );
}

/** Fills shows how full a host's tables are. */
function Fills({ of: h }: { of: Host }) {
  return (
    <ul class="fills">
      {(h.tables ?? []).map((t) => (
        <li key={t.name}>
          <meter min={0} max={Math.max(t.max, 1)} high={t.max * 0.8} value={t.used} aria-label={`${t.name}: ${t.used} of ${t.max}`} />
          {t.name} {Math.floor((t.used * 100) / Math.max(t.max, 1))}%
        </li>
      ))}
    </ul>
  );
}
