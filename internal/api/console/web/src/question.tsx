// What the pages that ask questions share.

import type { ComponentChildren } from "preact";
import { useEffect, useState } from "preact/hooks";
import { type ApiError, call, type End } from "./api";
import { failed } from "./load";
import { Failure, time } from "./parts";
import { address, go, Link, query } from "./router";

/** asked returns the fields of the question that the page's address is. */
export function asked<F extends string>(fields: readonly F[]): Record<F, string> {
  return Object.fromEntries(fields.map((f) => [f, address.value.searchParams.get(f) ?? ""])) as Record<F, string>;
}

export interface Asking<A> {
  answer?: A;
  error?: ApiError;
  busy: boolean;
  again: () => void;
}

/** useAnswer asks when the page's address changes, if it is a question. */
export function useAnswer<A>(path: string, question: Record<string, string>, whole: boolean): Asking<A> {
  const [answer, setAnswer] = useState<A>();
  const [error, setError] = useState<ApiError>();
  const [busy, setBusy] = useState(false);
  const [turn, setTurn] = useState(0);
  useEffect(() => {
    setAnswer(undefined);
    setError(undefined);
    if (!whole) return;
    let shown = true;
    setBusy(true);
    call<A>("POST", path, { ...question, port: question.port ? Number(question.port) : undefined })
      .then((a) => shown && setAnswer(a), (e) => shown && failed(e, setError))
      .finally(() => shown && setBusy(false));
    return () => {
      shown = false;
    };
  }, [address.value.search, turn]);
  return { answer, error, busy, again: () => setTurn(turn + 1) };
}

interface FormProps {
  fields: readonly string[];
  text: string;
  asking: Asking<unknown>;
  children: ComponentChildren;
}

/** QuestionForm goes to the address of the question in its fields, and asks again where the page is there. */
export function QuestionForm({ fields, text, asking, children }: FormProps) {
  const url = address.value;
  const submit = (e: SubmitEvent) => {
    e.preventDefault();
    const form = e.currentTarget as HTMLFormElement;
    const to = query(url.pathname, Object.fromEntries(fields.map((f) => [f, (form.elements.namedItem(f) as HTMLInputElement).value.trim()])));
    if (to === url.pathname + url.search) asking.again();
    else go(to);
  };
  return (
    <form class="question" onSubmit={submit} key={url.search}>
      <p class="quiet">{text}</p>
      {children}
      <button type="submit" class="primary" disabled={asking.busy}>{asking.busy ? "Asking…" : "Ask"}</button>
    </form>
  );
}

/** Answered shows the answer, why there is none, or what to expect of one. */
export function Answered<A>({ asking, hint, children }: { asking: Asking<A>; hint: ComponentChildren; children: (answer: A) => ComponentChildren }) {
  return (
    <div aria-live="polite">
      {asking.error && <Failure error={asking.error} again={asking.again} />}
      {asking.answer && children(asking.answer)}
      {!asking.answer && !asking.error && !asking.busy && hint}
    </div>
  );
}

/** Text is a field for a name or an address. */
export function Text({ name, label, value, placeholder, required, title }: { name: string; label: string; value: string; placeholder: string; required?: boolean; title?: string }) {
  return (
    <label>
      {label}
      <input name={name} defaultValue={value} required={required} autoCapitalize="none" spellcheck={false} placeholder={placeholder} title={title} />
    </label>
  );
}

/** Choice is a field with a few values. */
export function Choice({ name, label, value, choices }: { name: string; label: string; value: string; choices: Record<string, string> }) {
  return (
    <label>
      {label}
      <select name={name}>
        {Object.entries(choices).map(([v, text]) => <option key={v} value={v} selected={v === value}>{text}</option>)}
      </select>
    </label>
  );
}

/** Service is the fields for a protocol and a port. */
export function Service({ of: q, any }: { of: { protocol: string; port: string }; any: string }) {
  return (
    <>
      <Choice name="protocol" label="Protocol" value={q.protocol} choices={{ "": "by the port", tcp: "TCP", udp: "UDP", icmp: "ICMP" }} />
      <label>
        Port
        <input name="port" type="number" min={1} max={65535} defaultValue={q.port} placeholder={any} />
      </label>
    </>
  );
}

/** At is the field for the time that a question is about. */
export function At({ value }: { value: string }) {
  return <Text name="at" label="At" value={value} placeholder="now" title="A time such as 2026-11-28T06:00:00Z, or a revision from Changes; empty: now" />;
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

/** commandLine returns words as a shell takes them, and flags with the values that there are. */
export function commandLine(words: string[], flags: Record<string, string> = {}): string {
  const given = Object.entries(flags).filter(([, value]) => value).flat();
  return [...words, ...given].map((word) => (/^[\w@%+=:,./-]+$/.test(word) ? word : `'${word.replaceAll("'", `'\\''`)}'`)).join(" ");
}
