import type { CountedHost, Drop, Drops as Counted, Object as Thing, UnusedRules } from "../answers";
import { useLoad } from "../load";
import { Await, Command, count, Empty, Page, Ref, Scroll, State, time } from "../parts";
import { address, go, query } from "../router";
import { commandLine } from "../question";

interface Filter {
  port: string;
  host: string;
  code: string;
}

export function Drops() {
  const url = address.value;
  const q = (name: string) => url.searchParams.get(name) ?? "";
  const filter: Filter = { port: q("port"), host: q("host"), code: q("code") };
  const drops = useLoad<Counted>(query("/v1/drops", { ...filter }), 15);
  const submit = (e: SubmitEvent) => {
    e.preventDefault();
    const form = e.currentTarget as HTMLFormElement;
    const field = (name: string) => (form.elements.namedItem(name) as HTMLInputElement).value.trim();
    go(query("/drops", { port: field("port"), host: field("host"), code: field("code") }));
  };
  return (
    <Page title="Drops" aside={drops.at && <span class="quiet">as of {drops.at.toLocaleTimeString("en-GB")}</span>}>
      <form class="question" onSubmit={submit} key={url.search}>
        <p class="quiet">Packets that decisions of the virtual network dropped, since the agents of their hosts started.</p>
        <label>
          Port
          <input name="port" defaultValue={filter.port} autoCapitalize="none" spellcheck={false} placeholder="all, or name, id, address" />
        </label>
        <label>
          Host
          <input name="host" defaultValue={filter.host} autoCapitalize="none" spellcheck={false} placeholder="all" />
        </label>
        <label>
          Code
          <input name="code" defaultValue={filter.code} autoCapitalize="none" spellcheck={false} placeholder="all" />
        </label>
        <button type="submit" class="primary">Show</button>
      </form>
      <Await of={drops}>
        {(d) => (
          <section aria-labelledby="dropped">
            <h2 id="dropped">Dropped</h2>
            <Since of={d.hosts} />
            {d.drops.length === 0 ? <Empty>No packet was dropped{filter.port || filter.host || filter.code ? " that is like that" : ""}.</Empty> : <DropTable of={d.drops} />}
          </section>
        )}
      </Await>
      {!filter.port && !filter.host && !filter.code && <Unused />}
      <section aria-labelledby="command">
        <h2 id="command">As command</h2>
        <Command text={commandOf(filter)} />
      </section>
    </Page>
  );
}

function commandOf(f: Filter): string {
  return commandLine(["heddle", "drops", ...(f.port ? [f.port] : [])], { "--host": f.host, "--code": f.code });
}

/** Since says since when all hosts have counted, and what is missing. */
function Since({ of: hosts }: { of: CountedHost[] }) {
  const since = hosts.map((h) => h.since ?? "").sort().at(-1);
  return (
    <>
      <p class="quiet">{since ? `Counted by ${count(hosts.length, "host")}, by all of them since ${time(since)}.` : "No host has counted."}</p>
      {hosts.filter((h) => h.error).map((h) => (
        <p key={h.name}><State mood="warn">Host {h.name} is missing: {h.error}</State></p>
      ))}
      {hosts.filter((h) => h.left).map((h) => (
        <p key={h.name} class="quiet">Host {h.name} has {count(h.left!, "counter")} of fewer packets: name a port, a code or the host.</p>
      ))}
    </>
  );
}

function DropTable({ of: drops }: { of: Drop[] }) {
  return (
    <Scroll label="drops">
      <table>
        <thead><tr><th class="number">Packets</th><th>Port</th><th>Direction</th><th>Code</th><th>By</th><th>Hosts</th></tr></thead>
        <tbody>
          {drops.map((d, i) => (
            <tr key={i}>
              <td class="number">{d.packets.toLocaleString("en")}</td>
              <th scope="row">{d.port ? <Ref kind="port" id={d.port.id} name={d.port.name} /> : <span class="quiet">others</span>}</th>
              <td>{d.direction}</td>
              <td><code>{d.code}</code></td>
              <td>{d.object ? <Decider of={d.object} /> : d.rule}</td>
              <td>{d.hosts.join(", ")}</td>
            </tr>
          ))}
        </tbody>
      </table>
    </Scroll>
  );
}

/** Decider names what has dropped packets, and is a link to what it is part of. */
function Decider({ of: o }: { of: Thing }) {
  const kind = o.kind.replaceAll("-", " ");
  return (
    <>
      {kind} <Ref kind={kind} id={o.id} name={o.name} />
      {o.group && <> of <Ref kind={o.group.kind.replaceAll("-", " ")} id={o.group.id} name={o.group.name} /></>}
    </>
  );
}

function Unused() {
  const unused = useLoad<UnusedRules>("/v1/unused-rules", 60);
  return (
    <Await of={unused}>
      {(u) => (
        <section aria-labelledby="unused">
          <h2 id="unused">Rules by which nothing passed <span class="quiet">{u.rules.length}</span></h2>
          {u.rules.length === 0 ? (
            <Empty>Each rule of a security group with ports has let something pass.</Empty>
          ) : (
            <Scroll label="unused rules">
              <table>
                <thead><tr><th>Group</th><th class="number">Ports</th><th>Allows</th><th>State</th></tr></thead>
                <tbody>
                  {u.rules.map((r) => (
                    <tr key={r.rule}>
                      <th scope="row"><Ref kind="security group" id={r.group.id} name={r.group.name} /></th>
                      <td class="number">{r.ports}</td>
                      <td>{r.text}</td>
                      <td>{r.asked ? <State mood="warn">asked, never matched</State> : <State mood="none">never asked</State>}</td>
                    </tr>
                  ))}
                </tbody>
              </table>
            </Scroll>
          )}
        </section>
      )}
    </Await>
  );
}
