import { type Cell, type Sets, type Sums, type Talk, useFlows } from "../flows";
import { Command, count, Empty, Failure, Page, Ref, Scroll, State, Switch } from "../parts";
import { asked, Choice, commandLine, Text } from "../question";
import { address, go, Link, query } from "../router";

const further = ["host", "network", "project", "code"] as const;
const filters = ["port", "peer", "proto", "service", "verdict", ...further] as const;

type Filter = Record<(typeof filters)[number], string>;

interface Shown {
  filter: Filter;
  live: boolean;
  view: "table" | Sets;
}

function pathOf(s: Shown): string {
  return query("/flows", { ...s.filter, live: s.live ? "true" : "", view: s.view === "table" ? "" : s.view });
}

export function Flows() {
  const url = address.value;
  const view = url.searchParams.get("view");
  const shown: Shown = { filter: asked(filters), live: url.searchParams.get("live") === "true", view: view === "group" || view === "network" ? view : "table" };
  const f = shown.filter;
  const flows = useFlows(f, shown.live);
  const submit = (e: SubmitEvent) => {
    e.preventDefault();
    const form = e.currentTarget as HTMLFormElement;
    const filter = Object.fromEntries(filters.map((f) => [f, (form.elements.namedItem(f) as HTMLInputElement).value.trim()])) as Filter;
    const to = pathOf({ ...shown, filter });
    if (to === url.pathname + url.search) flows.again();
    else go(to);
  };
  return (
    <Page title="Flows" aside={<Liveness state={flows.state} />}>
      <form class="question filters" onSubmit={submit} key={url.search}>
        <p class="quiet">Which connections were let pass and which were dropped, by the flow logs of hosts.</p>
        <Text name="port" label="Port" value={f.port} placeholder="all, or name, id, address" />
        <Text name="peer" label="Peer" value={f.peer} placeholder="all, or address, prefix" />
        <Text name="proto" label="Protocol" value={f.proto} placeholder="all" />
        <Text name="service" label="Service" value={f.service} placeholder="all" title="A destination port, such as 443" />
        <Choice name="verdict" label="Verdict" value={f.verdict} choices={{ "": "all", forward: "let pass", drop: "dropped", "error drop": "dropped by a fault" }} />
        <button type="submit" class="primary">Show</button>
        <details open={further.some((name) => f[name] !== "")}>
          <summary>Host, network, project, code</summary>
          <div>
            <Text name="host" label="Host" value={f.host} placeholder="all, or name, id" />
            <Text name="network" label="Network" value={f.network} placeholder="all, or id" />
            <Text name="project" label="Project" value={f.project} placeholder="all, or id" />
            <Text name="code" label="Code" value={f.code} placeholder="all, or no-rule" />
          </div>
        </details>
      </form>
      <div class="choices">
        <Switch label="View" of={shown.view} choices={{ table: "Table", group: "Groups", network: "Networks" }} choose={(v) => go(pathOf({ ...shown, view: v }), true)} />
        <Switch label="Time" of={shown.live ? "live" : "past"} choices={{ past: "Up to now", live: "Live" }} choose={(v) => go(pathOf({ ...shown, live: v === "live" }), true)} />
      </div>
      {flows.error && <Failure error={flows.error} again={flows.again} />}
      {!flows.error && <Known of={flows.sums} busy={flows.state === "reading"} shown={shown} />}
      <section aria-labelledby="command">
        <h2 id="command">As command</h2>
        <Command text={commandOf(shown)} />
      </section>
    </Page>
  );
}

function Liveness({ state }: { state: ReturnType<typeof useFlows>["state"] }) {
  if (state === "following") return <State mood="good">live</State>;
  if (state === "away") return <State mood="warn">flows do not arrive at present</State>;
  return null;
}

function commandOf({ filter: f, live }: Shown): string {
  return commandLine(["heddle", "flows", ...(live ? ["--follow"] : [])], Object.fromEntries(filters.map((name) => [`--${name}`, f[name]])));
}

/** Known shows what has been read, and what is missing. */
function Known({ of: sums, busy, shown }: { of: Sums; busy: boolean; shown: Shown }) {
  const talks = sums.newest();
  return (
    <>
      {[...sums.missing].map(([host, why]) => (
        <p key={host}><State mood="warn">Host {host} is missing: {why}</State></p>
      ))}
      {sums.lost > 0 && <p><State mood="warn">{count(sums.lost, "record is", "records are")} lost</State></p>}
      {talks.length === 0 ? (
        busy ? <p class="quiet" role="status">Reading…</p> : <Empty>{shown.live ? "Nothing has come yet. Hosts add up ten seconds, and drops come at once." : "No host remembers a flow that is like that."}</Empty>
      ) : shown.view === "table" ? (
        <>
          <Table of={talks} />
          {sums.dropped > 0 && <p class="quiet">{count(talks.length, "line")} with the newest records; {sums.dropped.toLocaleString("en")} older ones are left out.</p>}
        </>
      ) : (
        <Matrix of={[...sums.cells[shown.view].values()]} by={shown.view} beyond={sums.beyond} />
      )}
    </>
  );
}

const protocols: Record<number, string> = { 1: "icmp", 6: "tcp", 17: "udp", 58: "icmpv6", 132: "sctp" };

function serviceOf(t: Talk): string {
  const words = [protocols[t.protocol ?? 0] ?? `protocol ${t.protocol ?? 0}`];
  if (t.ports) words.push(`${t.ports} ports`);
  else if (t.service) words.push(String(t.service));
  else if (t.icmpType !== undefined) words.push(`type ${t.icmpType}`);
  return words.join(" ");
}

function Table({ of: talks }: { of: Talk[] }) {
  return (
    <Scroll label="flows">
      <table>
        <thead>
          <tr><th>Last</th><th>From</th><th>To</th><th>Service</th><th>Verdict</th><th class="number">Flows</th><th class="number">Packets</th><th class="number">Bytes</th><th>Host</th></tr>
        </thead>
        <tbody>
          {talks.map((t) => (
            <tr key={t.key}>
              <td>{t.last && new Date(t.last).toLocaleTimeString("en-GB")}</td>
              <th scope="row"><End id={t.port} name={t.from?.name} address={t.source} /></th>
              <td><End id={t.peerPort} name={t.to?.name} address={t.peer} /></td>
              <td>{serviceOf(t)}{t.reply && <span class="quiet"> answers</span>}</td>
              <td><Verdict of={t} /></td>
              <Counted of={t.flows} />
              <Counted of={t.packets} />
              <Counted of={t.bytes} />
              <td>{t.host}</td>
            </tr>
          ))}
        </tbody>
      </table>
    </Scroll>
  );
}

/** Counted is a number, which a single record of a drop does not have: the one that adds it up follows. */
function Counted({ of: n }: { of: number }) {
  return <td class="number">{n > 0 ? n.toLocaleString("en") : <span class="quiet" title="added up within ten seconds">…</span>}</td>;
}

function End({ id, name, address: at }: { id?: string; name?: string; address?: string }) {
  if (!id || name === undefined) return <>{at}</>;
  return <><Ref kind="port" id={id} name={name} />{at && at !== name && <span class="quiet"> {at}</span>}</>;
}

/** Verdict says what became of a flow, and leads to the question why it was dropped. */
function Verdict({ of: t }: { of: Talk }) {
  if (t.verdict === "forward") return <State mood="good">let pass</State>;
  const protocol = protocols[t.protocol ?? 0];
  const asks = !t.reply && (protocol === "tcp" || protocol === "udp" || protocol === "icmp");
  const port = t.service && protocol !== "icmp" ? String(t.service) : "";
  return (
    <>
      <State mood="bad">dropped</State> {t.code && <code>{t.code}</code>}{" "}
      {asks && <Link to={query("/ask", { from: t.from ? t.port : t.source, to: t.to ? t.peerPort : t.peer, protocol, port })}>Why?</Link>}
    </>
  );
}

/** mostSets is the number of rows and of columns of the matrix; further sets are added up in the last. */
const mostSets = 24;
const others = "others";

function Matrix({ of: cells, by, beyond }: { of: Cell[]; by: Sets; beyond: number }) {
  if (cells.length === 0) return <Empty>There are only answers among the flows, and single packets.</Empty>;
  const from = setsOf(cells, "from");
  const to = setsOf(cells, "to");
  const sums = folded(cells, new Set(from), new Set(to));
  const highest = Math.max(...[...sums.values()].map((c) => c.passed));
  const what = by === "group" ? "security groups" : "networks";
  return (
    <>
      <p class="quiet">Flows from the ports of each row to those of each column, by their {what}: ✓ let pass, ✕ dropped. Answers are not counted.</p>
      <Scroll label={`flows between ${what}`}>
        <table class="matrix">
          <thead><tr><th scope="col">From</th>{to.map((t) => <th key={t} scope="col" class="number">{t}</th>)}</tr></thead>
          <tbody>
            {from.map((f) => (
              <tr key={f}>
                <th scope="row">{f}</th>
                {to.map((t) => <Sum key={t} of={sums.get(`${f}\n${t}`)} highest={highest} />)}
              </tr>
            ))}
          </tbody>
        </table>
      </Scroll>
      {beyond > 0 && <p class="quiet">{count(beyond, "flow")} between further pairs are not in it.</p>}
    </>
  );
}

/** setsOf returns the sets at one end, those of most flows first, and others where there are too many. */
function setsOf(cells: Cell[], end: "from" | "to"): string[] {
  const flows = new Map<string, number>();
  for (const c of cells) flows.set(c[end], (flows.get(c[end]) ?? 0) + c.passed + c.dropped);
  const sorted = [...flows].sort((a, b) => b[1] - a[1] || (a[0] < b[0] ? -1 : 1)).map(([name]) => name);
  return sorted.length > mostSets ? [...sorted.slice(0, mostSets - 1), others] : sorted;
}

function folded(cells: Cell[], from: Set<string>, to: Set<string>): Map<string, Cell> {
  const sums = new Map<string, Cell>();
  for (const c of cells) {
    const [f, t] = [from.has(c.from) ? c.from : others, to.has(c.to) ? c.to : others];
    const before = sums.get(`${f}\n${t}`) ?? { from: f, to: t, passed: 0, dropped: 0 };
    sums.set(`${f}\n${t}`, { ...before, passed: before.passed + c.passed, dropped: before.dropped + c.dropped });
  }
  return sums;
}

function Sum({ of: c, highest }: { of: Cell | undefined; highest: number }) {
  if (!c) return <td class="number quiet">–</td>;
  const level = c.passed === 0 ? 0 : Math.ceil((4 * Math.log1p(c.passed)) / Math.log1p(highest));
  return (
    <td class={`number level-${level}${c.dropped > 0 ? " dropped" : ""}`}>
      {c.passed > 0 && <span><Sign sign="✓" text="let pass" /> {c.passed.toLocaleString("en")}</span>}
      {c.dropped > 0 && <span class="bad"><Sign sign="✕" text="dropped" /> {c.dropped.toLocaleString("en")}</span>}
    </td>
  );
}

function Sign({ sign, text }: { sign: string; text: string }) {
  return <><span aria-hidden="true">{sign}</span><span class="heard">{text}</span></>;
}
