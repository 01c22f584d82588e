// The search in the frame: it leads to an object's page.

import { useEffect, useRef, useState } from "preact/hooks";
import { call, type Found } from "./api";
import { pathOf } from "./parts";
import { go } from "./router";

export function Search() {
  const [text, setText] = useState("");
  const [found, setFound] = useState<Found[]>();
  const [at, setAt] = useState(-1);
  const input = useRef<HTMLInputElement>(null);
  const box = useRef<HTMLDivElement>(null);

  useEffect(() => {
    setAt(-1);
    if (text.trim() === "") {
      setFound(undefined);
      return;
    }
    let shown = true;
    call<{ found: Found[] }>("GET", `/v1/search?q=${encodeURIComponent(text)}`).then(
      (a) => shown && setFound(a.found),
      () => shown && setFound(undefined),
    );
    return () => {
      shown = false;
    };
  }, [text]);

  const open = (f: Found) => {
    setText("");
    input.current?.blur();
    go(pathOf(f.kind, f.id)!);
  };
  const onKeyDown = (e: KeyboardEvent) => {
    if (!found) return;
    switch (e.key) {
      case "ArrowDown":
      case "ArrowUp": {
        e.preventDefault();
        const step = e.key === "ArrowDown" ? 1 : -1;
        setAt(Math.min(Math.max(at + step, -1), found.length - 1));
        break;
      }
      case "Enter":
        if (found.length > 0) open(found[Math.max(at, 0)]);
        break;
      case "Escape":
        setText("");
    }
  };
  return (
    <div class="search" ref={box} onFocusOut={(e) => !box.current?.contains(e.relatedTarget as globalThis.Node) && setFound(undefined)}>
      <input
        ref={input}
        type="search"
        role="combobox"
        list={undefined}
        aria-label="Search ports, networks, routers, groups and hosts"
        aria-expanded={found !== undefined}
        aria-controls="found"
        aria-autocomplete="list"
        aria-activedescendant={at >= 0 ? `found-${at}` : undefined}
        placeholder="Name, id or address"
        autoComplete="off"
        spellcheck={false}
        value={text}
        onInput={(e) => setText(e.currentTarget.value)}
        onKeyDown={onKeyDown}
      />
      <ul id="found" role="listbox" aria-label="Found" hidden={found === undefined}>
        {found?.length === 0 && <li class="quiet" role="option" aria-selected="false" aria-disabled="true">Nothing has a name, id or address that begins so.</li>}
        {found?.map((f, i) => (
          <li key={f.kind + f.id + f.name} id={`found-${i}`} role="option" aria-selected={i === at} onPointerDown={(e) => e.preventDefault()} onClick={() => open(f)}>
            <span>{f.name || f.id}</span>
            <span class="quiet">{[f.kind, f.detail].filter(Boolean).join(" · ")}</span>
          </li>
        ))}
      </ul>
    </div>
  );
}
