import type { End, Leg, Name, WhyAnswer } from "../api";
import { Command, Empty, Page, State } from "../parts";
import { PathOf } from "../path";
import { Answered, asked, At, commandLine, EndName, Moment, QuestionForm, Service, Text, useAnswer } from "../question";
import { isAdmin } from "../session";
import { Words } from "../words";

const fields = ["from", "to", "protocol", "port", "at"] as const;

type Question = Record<(typeof fields)[number], string>;

export function Ask() {
  const question = asked(fields);
  const asking = useAnswer<WhyAnswer>("/v1/why", question, question.from !== "" && question.to !== "");
  return (
    <Page title="Ask">
      <QuestionForm fields={fields} asking={asking} text="Would a new connection pass? An end is a port, by name or id, or an address, inside or outside.">
        <Text name="from" label="From" value={question.from} placeholder="web or 198.51.100.7" required />
        <Text name="to" label="To" value={question.to} placeholder="db or 203.0.113.10" required />
        <Service of={question} any="443" />
        {isAdmin() ? <At value={question.at} /> : <input type="hidden" name="at" value="" />}
      </QuestionForm>
      <Answered
        asking={asking}
        hint={
          <Empty>
            <p>The answer says whether the connection passes, what decides, each step, and which change would let it pass.</p>
            <p>The address of this page then is the question: send it to a colleague.</p>
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
  const to = q.port ? (q.to.includes(":") ? `[${q.to}]:${q.port}` : `${q.to}:${q.port}`) : q.to;
  return commandLine(["heddle", "why"], { "--from": q.from, "--to": to, "--proto": q.protocol, "--at": q.at });
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
          {isAdmin() && <Moment of={a} />}{" "}
          {isAdmin() && !a.there.trace.liveState && !a.there.trace.hostId && "No agent answered; the server did, which knows no connections."}
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
                <Command text={commandLine(["heddle", ...r.command.filter((w, i) => i > 0 || w !== "heddle")])} />
              </li>
            ))}
          </ul>
        </section>
      )}
      <Way title="There" leg={a.there} names={names} from={a.from} to={a.to} />
      {a.back && <Way title="Back" leg={a.back} names={names} from={a.to} to={a.from} />}
      <section aria-labelledby="command">
        <h2 id="command">As command</h2>
        <Command text={commandOf(question)} />
      </section>
    </>
  );
}

function Way({ title, leg, names, from, to }: { title: string; leg: Leg; names: Record<string, Name>; from: End; to: End }) {
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
      <PathOf leg={leg} names={names} from={from} to={to} title={title} />
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
