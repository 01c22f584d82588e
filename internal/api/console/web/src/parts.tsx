// Parts that several pages use.

import type { ComponentChildren } from "preact";
import { useState } from "preact/hooks";
import type { ApiError } from "./api";
import type { Loaded } from "./load";
import { Link } from "./router";
import { isAdmin } from "./session";

export type Mood = "good" | "bad" | "warn" | "none";

const signs: Record<Mood, string> = { good: "✓", bad: "✕", warn: "!", none: "–" };

/** State is a state in words, with a sign beside the colour. */
export function State({ mood, children }: { mood: Mood; children: ComponentChildren }) {
  return (
    <span class={`state ${mood}`}>
      <span class="sign" aria-hidden="true">{signs[mood]}</span>
      {children}
    </span>
  );
}

export function Page({ title, aside, wide, children }: { title: string; aside?: ComponentChildren; wide?: boolean; children: ComponentChildren }) {
  return (
    <main id="main" class={wide ? "wide" : ""} tabIndex={-1}>
      <div class="title">
        <h1>{title}</h1>
        {aside}
      </div>
      {children}
    </main>
  );
}

/** Await shows what was loaded, that it is loading, or why it cannot be. */
export function Await<T>({ of, children }: { of: Loaded<T> & { again: () => void }; children: (data: T) => ComponentChildren }) {
  return (
    <>
      {of.error && <Failure error={of.error} stale={of.data !== undefined ? of.at : undefined} again={of.again} />}
      {of.data !== undefined ? children(of.data) : !of.error && <p class="quiet" role="status">Loading…</p>}
    </>
  );
}

export function Failure({ error, stale, again }: { error: ApiError; stale?: Date; again?: () => void }) {
  return (
    <div class="notice bad" role="alert">
      <p>
        <State mood="bad">{error.status === 404 ? "Not found" : "That did not work"}</State>
      </p>
      <p>{error.message}</p>
      {stale && <p>What follows is of {time(stale)}.</p>}
      {again && <button type="button" onClick={again}>Try again</button>}
    </div>
  );
}

export function Empty({ children }: { children: ComponentChildren }) {
  return <div class="empty">{children}</div>;
}

/** Scroll lets a wide table scroll by itself, by keyboard too. */
export function Scroll({ label, children }: { label: string; children: ComponentChildren }) {
  return (
    <div class="scroll" role="region" aria-label={`Table of ${label}`} tabIndex={0}>
      {children}
    </div>
  );
}

export function Command({ text }: { text: string }) {
  const [copied, setCopied] = useState(false);
  const copy = async () => {
    await navigator.clipboard.writeText(text);
    setCopied(true);
  };
  return (
    <div class="command">
      <code>
        {text.split(" ").map((word, i) => (
          <span key={i} class="word">{word} </span>
        ))}
      </code>
      {navigator.clipboard && (
        <button type="button" class="small" onClick={copy} aria-label={`Copy ${text}`}>
          {copied ? "Copied" : "Copy"}
        </button>
      )}
    </div>
  );
}

const paths: Record<string, string> = {
  port: "/ports/",
  network: "/networks/",
  router: "/routers/",
  "security group": "/groups/",
  host: "/hosts/",
};

/** pathOf returns the address of an object's page; undefined: it has none that the user may see. */
export function pathOf(kind: string, id: string): string | undefined {
  const path = isAdmin() || kind === "port" ? paths[kind] : undefined;
  return path && path + encodeURIComponent(id);
}

/** Ref is a link to an object's page, by its name. */
export function Ref({ kind, id, name }: { kind: string; id: string; name?: string }) {
  const path = pathOf(kind, id);
  const text = name || id.slice(0, 8);
  return path ? <Link to={path}>{text}</Link> : <>{text}</>;
}

export function Facts({ rows }: { rows: [string, ComponentChildren][] }) {
  return (
    <dl class="facts">
      {rows.map(([name, value]) => (
        <div key={name}>
          <dt>{name}</dt>
          <dd>{value === "" || value === undefined || value === null || value === false ? <span class="quiet">none</span> : value}</dd>
        </div>
      ))}
    </dl>
  );
}

export function time(t: Date | string): string {
  return new Date(t).toLocaleString("en-GB", { dateStyle: "medium", timeStyle: "short" });
}

export function date(t: Date | string): string {
  return new Date(t).toLocaleDateString("en-GB", { dateStyle: "medium" });
}

export function count(n: number, one: string, many = one + "s"): string {
  return `${n.toLocaleString("en")} ${n === 1 ? one : many}`;
}

/** Switch has one of a few values. */
export function Switch<V extends string>({ label, of, choices, choose }: { label: string; of: V; choices: Record<V, string>; choose: (v: V) => void }) {
  return (
    <div role="group" aria-label={label} class="switch">
      {(Object.entries(choices) as [V, string][]).map(([v, text]) => (
        <button key={v} type="button" class="small" aria-pressed={v === of} onClick={() => choose(v)}>{text}</button>
      ))}
    </div>
  );
}
