import { useEffect, useState } from "preact/hooks";
import { type ApiError, call, type End, type Leg, type Name, type WhyAnswer } from "../api";
import { failed } from "../load";
import { Command, Empty, Failure, Page, paths, State, time } from "../parts";
import { address, go, Link, query } from "../router";

interface Question {
  from: string;
  to: string;
  protocol: string;
  port: string;
  at: string;
}

/** asked returns the question of an address. */
function asked(url: URL): Question {
  const q = (name: string) => url.searchParams.get(name) ?? "";
  return { from: q("from"), to: q("to"), protocol: q("protocol"), port: q("port"), at: q("at") };
}

export function Ask() {
  const url = address.value;
  const question = asked(url);
  const [answer, setAnswer] = useState<WhyAnswer>();
  const [error, setError] = useState<ApiError>();
  const [busy, setBusy] = useState(false);
  const [turn, setTurn] = useState(0);

  useEffect(() => {
    setAnswer(undefined);
    setError(undefined);
    if (!question.from || !question.to) return;
    let shown = true;
    setBusy(true);
    call<WhyAnswer>("POST", "/v1/why", {
      from: question.from,
      to: question.to,
      protocol: question.protocol,
      port: question.port ? Number(question.port) : undefined,
      at: question.at,
    })
      .then((a) => shown && setAnswer(a), (e) => shown && failed(e, setError))
      .finally(() => shown && setBusy(false));
    return () => {
      shown = false;
    };
  }, [url.search, turn]);

  const submit = (e: SubmitEvent) => {
    e.preventDefault();
    const form = e.currentTarget as HTMLFormElement;
    const field = (name: string) => (form.elements.namedItem(name) as HTMLInputElement).value.trim();
    const to = query("/ask", { from: field("from"), to: field("to"), protocol: field("protocol"), port: field("port"), at: field("at") });
    if (to === url.pathname + url.search) setTurn(turn + 1);
    else go(to);
  };
  return (
    <Page title="Ask">
      <form class="question" onSubmit={submit} key={url.search}>
        <p class="quiet">Would a new connection pass? An end is a port, by name or id, or an address, inside or outside.</p>
        <label>
          From
          <input name="from" defaultValue={question.from} required autoCapitalize="none" spellcheck={false} placeholder="web or 198.51.100.7" />
        </label>
        <label>
          To
          <input name="to" defaultValue={question.to} required autoCapitalize="none" spellcheck={false} placeholder="db or 203.0.113.10" />
        </label>
        <label>
          Protocol
          <select name="protocol">
            <option value="" selected={question.protocol === ""}>by the port</option>
            <option value="tcp" selected={question.protocol === "tcp"}>TCP</option>
            <option value="udp" selected={question.protocol === "udp"}>UDP</option>
            <option value="icmp" selected={question.protocol === "icmp"}>ICMP</option>
          </select>
        </label>
        <label>
          Port
          <input name="port" type="number" min={1} max={65535} defaultValue={question.port} placeholder="443" />
        </label>
        <At value={question.at} />
        <button type="submit" class="primary" disabled={busy}>{busy ? "Asking…" : "Ask"}</button>
      </form>
      <div aria-live="polite">
        {error && <Failure error={error} again={() => setTurn(turn + 1)} />}
        {answer && <Answer of={answer} question={question} />}
        {!answer && !error && !busy && (
          <Empty>
            <p>The answer says whether the connection passes, what decides, each step, and which change would let it pass.</p>
            <p>The address of this page then is the question: send it to a colleague.</p>
          </Empty>
        )}
      </div>
    </Page>
  );
}

/** At is the field for the time that a question is about. */
export function At({ value }: { value: string }) {
  return (
    <label>
      At
      <input name="at" defaultValue={value} placeholder="now" autoCapitalize="none" spellcheck={false} title="A time such as 2026-11-28T06:00:00Z, or a revision from Changes; empty: now" />
    </label>
  );
}

/** commandOf returns the command line that asks the same. */
export function commandOf(q: Question): string {
  const to = q.port ? (q.to.includes(":") ? `[${q.to}]:${q.port}` : `${q.to}:${q.port}`) : q.to;
  const words = ["heddle", "why", "--from", q.from, "--to", to];
  if (q.protocol) words.push("--proto", q.protocol);
  if (q.at) words.push("--at", q.at);
  return words.map(quoted).join(" ");
}

/** quoted returns a word as a shell takes it. */
export function quoted(word: string): string {
  return /^[\w@%+=:,./-]+$/.test(word) ? word : `'${word.replaceAll("'", `'\\''`)}'`;
}

const verdicts = {
  allowed: { mood: "good", text: "Allowed" },
  denied: { mood: "bad", text: "Denied" },
  "one-way": { mood: "warn", text: "One way only: it arrives, but the answer does not" },
} as const;

function Answer({ of: a, question }: { of: WhyAnswer; question: Question }) {
  const verdict = verdicts[a.verdict];
  const names = a.names ?? {};
  const remedies = a.remedies ?? [];
  return (
    <>
      <section class={`verdict ${verdict.mood}`} aria-labelledby="verdict">
        <h2 id="verdict"><State mood={verdict.mood}>{verdict.text}</State></h2>
        <p>
          {a.service} from <EndName of={a.from} /> to <EndName of={a.to} />
        </p>
        <p class="quiet">
          <Moment of={a} />{" "}
          {!a.there.trace.liveState && !a.there.trace.hostId && "No agent answered; the server did, which knows no connections."}
        </p>
      </section>
      {remedies.length > 0 && (
        <section aria-labelledby="remedies">
          <h2 id="remedies">What would let it pass</h2>
          <p class="quiet">Tried in memory, and not made.</p>
          <ul class="plain">
            {remedies.map((r) => (
              <li key={r.text}>
                <p><Words text={r.text} names={names} /></p>
                <Command text={["heddle", ...r.command.filter((w, i) => i > 0 || w !== "heddle")].map(quoted).join(" ")} />
              </li>
            ))}
          </ul>
        </section>
      )}
      <Way title="There" leg={a.there} names={names} />
      {a.back && <Way title="Back" leg={a.back} names={names} />}
      <section aria-labelledby="command">
        <h2 id="command">As command</h2>
        <Command text={commandOf(question)} />
      </section>
    </>
  );
}

/** Moment says which state of the virtual network an answer is of. */
export function Moment({ of: a }: { of: { revision: number; time?: string } }) {
  return <>Of revision {a.revision} of the store{a.time && `, of ${time(a.time)}`}.</>;
}

export function EndName({ of: e }: { of: End }) {
  return (
    <>
      {e.port ? <Link to={`/ports/${e.port}`}>{e.name || e.address}</Link> : <strong>{e.address}</strong>}
      {e.port && e.name && ` (${e.address})`}
      {e.host && ` on ${e.host}`}
    </>
  );
}

function Way({ title, leg, names }: { title: string; leg: Leg; names: Record<string, Name> }) {
  const walk = leg.trace.walk ?? [];
  return (
    <section aria-label={title}>
      <h2>
        {title}: <State mood={leg.allowed ? "good" : "bad"}>{leg.allowed ? "passes" : "denied"}</State>
        {!leg.allowed && leg.trace.code && <code class="code">{leg.trace.code}</code>}
      </h2>
      <p><Words text={leg.reason} names={names} /></p>
      {leg.nearest && leg.nearest.length > 0 && (
        <>
          <h3>Rules that came nearest</h3>
          <ul>
            {leg.nearest.map((n) => (
              <li key={n.group + n.rule}>
                <Words text={n.group} names={names} />: <Words text={n.text} names={names} />
                {n.fails?.length > 0 && <>: <Words text={n.fails.join("; ")} names={names} /></>}
              </li>
            ))}
          </ul>
        </>
      )}
      <details>
        <summary>{walk.length === 1 ? "1 step" : `${walk.length} steps`}</summary>
        <ol class="steps">
          {walk.map((s, i) => (
            <li key={i} class={s.code ? "bad" : ""}>
              {s.device && <span class="where"><Words text={s.device} names={names} /></span>}
              <span>
                {s.code && <State mood="bad">{s.code}</State>} <Words text={s.text} names={names} />
              </span>
            </li>
          ))}
        </ol>
      </details>
    </section>
  );
}

// Ids that stand by themselves: those within the name of a chain are a part of it.
const uuid = /(?<!\w)([0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})(?!\w)/;

/** Words is a text whose ids are links to what they stand for, by name. */
export function Words({ text, names }: { text: string; names: Record<string, Name> }) {
  const parts = text.split(uuid);
  return (
    <>
      {parts.map((part, i) => {
        if (i % 2 === 0) return part;
        const name = names[part];
        if (!name) return <code key={i}>{part}</code>;
        // A text may say the kind itself: "arrives at port ID".
        const said = parts[i - 1].trimEnd().endsWith(name.kind);
        const label = (said && name.name) || [name.kind, name.name].filter(Boolean).join(" ");
        const path = paths[name.kind];
        return path ? <Link key={i} to={path + part}>{label}</Link> : <span key={i} title={part}>{label}</span>;
      })}
    </>
  );
}
