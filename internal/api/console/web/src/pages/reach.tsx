import type { Reach as Row, ReachPairs, ReachPort } from "../answers";
import type { Name, ReachAnswer, ServiceRange } from "../api";
import { Command, count, Empty, Page, Ref, Scroll } from "../parts";
import { Answered, asked, At, Choice, commandLine, EndName, Moment, QuestionForm, Service, Text, useAnswer } from "../question";

const fields = ["from", "to", "by", "protocol", "port", "at"] as const;

type Question = Record<(typeof fields)[number], string>;

/** few is the number of ports that are listed by name; of more those are counted by their groups. */
const few = 12;

export function Reach() {
  const question = asked(fields);
  const asking = useAnswer<ReachAnswer>("/v1/reach", question, (question.from || question.to || question.by) !== "");
  return (
    <Page title="Reach">
      <QuestionForm
        fields={fields}
        asking={asking}
        text="Who reaches a machine, and by which services? Name what it is about: a port by name or id, or an address. With both ends only that pair is asked about."
      >
        <Text name="from" label="From" value={question.from} placeholder="all" />
        <Text name="to" label="To" value={question.to} placeholder="all" />
        <Choice name="by" label="All pairs by" value={question.by} choices={{ "": "–", group: "group", network: "network", project: "project" }} />
        <Service of={question} any="all" />
        <At value={question.at} />
      </QuestionForm>
      <Answered
        asking={asking}
        hint={
          <Empty>
            <p>The answer lists all services that work for new connections, with who has them, inside and outside.</p>
            <p>All pairs want a service, such as TCP and a port, and are counted by group, network or project.</p>
          </Empty>
        }
      >
        {(answer) => <Answer of={answer} question={question} />}
      </Answered>
    </Page>
  );
}

/** commandOf returns the command line that asks the same. */
function commandOf(q: Question): string {
  return commandLine(["heddle", "reach"], { "--from": q.from, "--to": q.to, "--by": q.by, "--proto": q.protocol, "--port": q.port, "--at": q.at });
}

function Answer({ of: a, question }: { of: ReachAnswer; question: Question }) {
  const names = a.names ?? {};
  return (
    <>
      <section aria-labelledby="answer">
        <h2 id="answer">
          {a.service || "Services"}
          {a.from && <> from <EndName of={a.from} /></>}
          {a.to && <> to <EndName of={a.to} /></>}
        </h2>
        <p class="quiet"><Moment of={a} /></p>
        {a.pairs || question.by ? <Pairs of={a} by={question.by} names={names} /> : <Rows of={a} names={names} />}
      </section>
      <section aria-labelledby="command">
        <h2 id="command">As command</h2>
        <Command text={commandOf(question)} />
      </section>
    </>
  );
}

function Rows({ of: a, names }: { of: ReachAnswer; names: Record<string, Name> }) {
  const pair = a.from !== undefined && a.to !== undefined;
  const others = a.to ? "None of the other ports reaches it" : "It reaches none of the other ports";
  return (
    <>
      {a.reaches.length === 0 ? (
        <Empty>{pair ? "No new connection passes in this direction." : a.to ? "Nothing reaches it." : "It reaches nothing."}</Empty>
      ) : (
        <Scroll label="services">
          <table>
            <thead><tr><th>IP</th><th>Services</th>{!pair && <th>{a.to ? "From" : "To"}</th>}</tr></thead>
            <tbody>
              {a.reaches.map((row, i) => (
                <tr key={i}>
                  <td>IPv{row.version}</td>
                  <th scope="row"><Services of={row} /></th>
                  {!pair && <td><Others of={row} names={names} /></td>}
                </tr>
              ))}
            </tbody>
          </table>
        </Scroll>
      )}
      {!pair && a.reaches.length > 0 && a.silent > 0 && <p class="quiet">{others}: {a.silent.toLocaleString("en")}.</p>}
    </>
  );
}

function Services({ of: row }: { of: Row }) {
  const part = (ranges: ServiceRange[] | undefined, note: string) =>
    ranges && ranges.length > 0 && <li>{ranges.map((r) => r.text).join(", ")}{note && <span class="quiet"> {note}</span>}</li>;
  return (
    <ul class="plain">
      {part(row.always, "")}
      {part(row.may, "for some connections")}
      {part(row.oneWay, "without an answer")}
    </ul>
  );
}

function Others({ of: row, names }: { of: Row; names: Record<string, Name> }) {
  const ports = row.ports ?? [];
  return (
    <ul class="plain">
      {(row.outside ?? []).map((o) => (
        <li key={o.address + o.text}>outside: {o.text}, <span class="quiet">at {o.address}</span></li>
      ))}
      {ports.length > few ? counted(ports, names).map((text) => <li key={text}>{text}</li>) : ports.map((p) => (
        <li key={p.port + p.address}><Ref kind="port" id={p.port} name={p.name} /> {p.name !== p.address && <span class="quiet">{p.address}</span>}</li>
      ))}
    </ul>
  );
}

/** counted counts ports by the groups that they are in. */
function counted(ports: ReachPort[], names: Record<string, Name>): string[] {
  const counts = new Map<string, number>();
  for (const p of ports) {
    const groups = (p.groups ?? []).map((g) => names[g]?.name || g).sort().join(" and ");
    counts.set(groups, (counts.get(groups) ?? 0) + 1);
  }
  return [...counts].sort((a, b) => b[1] - a[1]).map(([groups, n]) => `${count(n, "port")} ${groups ? `of group ${groups}` : "in no group"}`);
}

function Pairs({ of: a, by, names }: { of: ReachAnswer; by: string; names: Record<string, Name> }) {
  const pairs = a.pairs ?? [];
  if (pairs.length === 0) return <Empty>No machine reaches another one by this service.</Empty>;
  const kind = by === "group" ? "security group" : by;
  const set = (id: string) => (id ? <Ref kind={kind} id={id} name={names[id]?.name} /> : <span class="quiet">in none</span>);
  return (
    <>
      <p class="quiet">Pairs of machines of which the first reaches the second.</p>
      <Scroll label="pairs">
        <table>
          <thead><tr><th>From</th><th>To</th><th class="number">Pairs that work</th><th class="number">of</th><th>Share</th><th>Limits</th></tr></thead>
          <tbody>
            {pairs.map((p) => (
              <tr key={`${p.from} ${p.to}`}>
                <th scope="row">{set(p.from)}</th>
                <td>{set(p.to)}</td>
                <td class="number">{p.reached.toLocaleString("en")}</td>
                <td class="number">{p.all.toLocaleString("en")}</td>
                <td><meter min={0} max={Math.max(p.all, 1)} value={p.reached} aria-label={`${p.reached} of ${p.all}`} /></td>
                <td>{limits(p)}</td>
              </tr>
            ))}
          </tbody>
        </table>
      </Scroll>
      {a.pairsOmitted ? <p class="quiet">{count(a.pairsOmitted, "pair of sets", "pairs of sets")} more have no place here: ask heddle reach -o json.</p> : null}
    </>
  );
}

function limits(p: ReachPairs): string {
  return [p.may && `${p.may} for some connections`, p.oneWay && `${p.oneWay} without an answer`].filter(Boolean).join(", ");
}
