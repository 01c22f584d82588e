import type { Author, ChangedField, ChangedObject, Gap, Revision } from "../answers";
import type { History, Name } from "../api";
import { Await, Command, count, Empty, Page, pathOf, Ref, State, time } from "../parts";
import { useLoad } from "../load";
import { address, go, Link, query } from "../router";
import { isAdmin } from "../session";
import { commandLine } from "../question";
import { Words } from "../words";

interface Filter {
  object: string;
  by: string;
  since: string;
  before: string;
}

export function Changes() {
  const url = address.value;
  const q = (name: string) => url.searchParams.get(name) ?? "";
  const filter: Filter = { object: q("object"), by: q("by"), since: q("since"), before: q("before") };
  const history = useLoad<History>(query("/v1/history", { ...filter, limit: "50" }), filter.before ? 0 : 60);
  const submit = (e: SubmitEvent) => {
    e.preventDefault();
    const form = e.currentTarget as HTMLFormElement;
    const field = (name: string) => (form.elements.namedItem(name) as HTMLInputElement).value.trim();
    go(query("/changes", { object: field("object"), by: field("by"), since: field("since") }));
  };
  return (
    <Page title="Changes" aside={history.at && <span class="quiet">as of {history.at.toLocaleTimeString("en-GB")}</span>}>
      <form class="question" onSubmit={submit} key={url.search}>
        <p class="quiet">Who changed what, the newest first. Times are those at which the server that answers heard of the change.</p>
        <label>
          Object
          <input name="object" defaultValue={filter.object} autoCapitalize="none" spellcheck={false} placeholder="name, id or floating IP" />
        </label>
        <label>
          By
          <input name="by" defaultValue={filter.by} autoCapitalize="none" spellcheck={false} placeholder="user" />
        </label>
        <label>
          Since
          <input name="since" defaultValue={filter.since} autoCapitalize="none" spellcheck={false} placeholder="2026-11-28T06:00:00Z" />
        </label>
        <button type="submit" class="primary">Show</button>
      </form>
      <Await of={history}>{(h) => <List of={h} filter={filter} />}</Await>
    </Page>
  );
}

function List({ of: h, filter }: { of: History; filter: Filter }) {
  const names = h.names ?? {};
  return (
    <>
      {h.problem && (
        <div class="notice bad" role="alert">
          <p><State mood="bad">Nothing is recorded at present</State></p>
          <p>{h.problem}</p>
        </div>
      )}
      {h.gaps.map((g) => <GapNote key={g.after} of={g} />)}
      {h.changes.length === 0 ? (
        <Empty>
          <p>No change {filter.object || filter.by || filter.since ? "is like that" : "is recorded"}.{h.begins && ` The record begins ${time(h.begins)}.`}</p>
        </Empty>
      ) : (
        <section aria-label="Changes">
          <ol class="changes">
            {h.changes.map((r) => <Change key={`${r.epoch}.${r.revision}`} of={r} names={names} />)}
          </ol>
        </section>
      )}
      <p class="pages">
        {filter.before && <Link to={query("/changes", { ...filter, before: "" })}>Newest changes</Link>}
        {h.next && <Link to={query("/changes", { ...filter, before: h.next })}>Older changes</Link>}
      </p>
      <section aria-labelledby="command">
        <h2 id="command">As command</h2>
        <Command text={commandOf(filter)} />
      </section>
    </>
  );
}

function commandOf(f: Filter): string {
  return commandLine(["heddle", "history", ...(f.object ? [f.object] : [])], { "--by": f.by, "--since": f.since });
}

function GapNote({ of: g }: { of: Gap }) {
  return (
    <div class="notice warn">
      <p><State mood="warn">Not recorded from {time(g.after_time)} to {time(g.until_time)}</State></p>
      {g.reason && <p>{g.reason}</p>}
    </div>
  );
}

function Change({ of: r, names }: { of: Revision; names: Record<string, Name> }) {
  const fields = r.objects.reduce((n, o) => n + (o.fields?.length ?? 0), 0);
  return (
    <li>
      <p class="what">
        <time dateTime={r.time}>{new Date(r.time).toLocaleString("en-GB", { dateStyle: "medium", timeStyle: "medium" })}</time>
        <AuthorOf of={r.author} />
      </p>
      <ul class="plain">
        {r.objects.map((o) => (
          <li key={o.key}>
            <State mood={o.change === "created" ? "good" : o.change === "deleted" ? "bad" : "none"}>{o.change}</State> {o.kind} <Thing of={o} />
          </li>
        ))}
        {r.objects.length === 0 && <li class="quiet">{count(r.derived?.length ?? 0, "derived record")} alone</li>}
      </ul>
      <details>
        <summary>{fields === 0 ? "No fields recorded" : count(fields, "field")}, revision {r.epoch}.{r.revision}</summary>
        {r.objects.map((o) => o.fields && o.fields.length > 0 && (
          <dl class="fields" key={o.key} aria-label={`${o.kind} ${o.name || o.id}`}>
            {o.fields.map((f) => <Field key={f.name} of={f} names={names} />)}
          </dl>
        ))}
        {r.author?.request_id && <p class="quiet">Request <code>{r.author.request_id}</code></p>}
        {isAdmin() && <p><Link to={query("/ask", { at: `${r.epoch}.${r.revision}` })}>Ask about the network as it was then</Link></p>}
      </details>
    </li>
  );
}

function AuthorOf({ of: a }: { of: Author | null }) {
  if (!a) return <span class="quiet">Heddle itself, or a direct write to the store</span>;
  return (
    <span>
      {a.user ? <Link to={query("/changes", { by: a.user })}>{a.user}</Link> : <span class="quiet">without a log-in</span>}
      {a.client && <span class="quiet"> from {a.client}</span>}
      <span class="quiet">: {a.summary || `${a.method} ${a.path ?? ""}`}</span>
    </span>
  );
}

function Thing({ of: o }: { of: ChangedObject }) {
  const label = o.name || o.id;
  return pathOf(o.kind, o.id) && o.change !== "deleted" ? <Ref kind={o.kind} id={o.id} name={label} /> : <strong>{label}</strong>;
}

function Field({ of: f, names }: { of: ChangedField; names: Record<string, Name> }) {
  return (
    <div>
      <dt><Words text={f.name} names={names} /></dt>
      <dd>
        {"before" in f && <del><Words text={JSON.stringify(f.before)} names={names} /></del>}
        {"before" in f && "after" in f && " → "}
        {"after" in f && <ins><Words text={JSON.stringify(f.after)} names={names} /></ins>}
      </dd>
    </div>
  );
}
