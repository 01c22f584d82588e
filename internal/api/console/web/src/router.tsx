// The address is the state of the page: each view and question has one.

import { signal } from "@preact/signals";
import type { ComponentChildren } from "preact";

export const address = signal(new URL(location.href));

addEventListener("popstate", () => (address.value = new URL(location.href)));

/** go changes the address and what is shown; with replace, without a step in the browser's history. */
export function go(to: string, replace = false) {
  history[replace ? "replaceState" : "pushState"](null, "", to);
  address.value = new URL(location.href);
  if (!replace) scrollTo(0, 0);
}

/** query returns a path with the parameters that are not empty. */
export function query(path: string, values: Record<string, string | string[] | undefined>): string {
  const q = new URLSearchParams();
  for (const [name, value] of Object.entries(values)) {
    for (const one of Array.isArray(value) ? value : [value ?? ""]) if (one !== "") q.append(name, one);
  }
  const text = q.toString();
  return text ? `${path}?${text}` : path;
}

export function Link({ to, children, ...rest }: { to: string; children: ComponentChildren; class?: string; "aria-current"?: "page" }) {
  return (
    <a
      href={to}
      onClick={(e) => {
        if (e.button !== 0 || e.metaKey || e.ctrlKey || e.shiftKey || e.altKey) return;
        e.preventDefault();
        go(to);
      }}
      {...rest}
    >
      {children}
    </a>
  );
}
