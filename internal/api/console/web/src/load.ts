// Reading the operators' API for as long as a view is shown.

import { useEffect, useState } from "preact/hooks";
import { ApiError, call } from "./api";
import { changes } from "./live";
import { session } from "./session";

export interface Loaded<T> {
  data?: T;
  /** error is that of the last attempt; data is then of an earlier one. */
  error?: ApiError;
  at?: Date;
}

/** useLoad calls GET path, and while the page is visible again every so many seconds and, unless told otherwise, when something has changed. */
export function useLoad<T>(path: string, everySeconds = 0, onChanges = true): Loaded<T> & { again: () => void } {
  const [loaded, setLoaded] = useState<Loaded<T>>({});
  const [turn, setTurn] = useState(0);
  useEffect(() => setLoaded({}), [path]);
  useEffect(() => {
    let shown = true;
    let timer = 0;
    let loading = false;
    let due = false;
    const load = async () => {
      loading = true;
      due = false;
      clearTimeout(timer);
      try {
        const data = await call<T>("GET", path);
        if (shown) setLoaded({ data, at: new Date() });
      } catch (e) {
        if (shown) failed(e, (error) => setLoaded((before) => ({ ...before, error })));
      }
      loading = false;
      if (!shown || !everySeconds) return;
      if (due) next();
      else timer = window.setTimeout(next, everySeconds * 1000);
    };
    const next = () => {
      if (loading) due = true;
      else if (document.visibilityState === "visible") void load();
      else document.addEventListener("visibilitychange", next, { once: true });
    };
    void load();
    let first = true;
    const stop = changes.subscribe(() => {
      if (!first && everySeconds && onChanges) next();
      first = false;
    });
    return () => {
      shown = false;
      stop();
      clearTimeout(timer);
      document.removeEventListener("visibilitychange", next);
    };
  }, [path, turn]);
  return { ...loaded, again: () => setTurn(turn + 1) };
}

/** failed ends the session if the server no longer takes it, and else passes the error on. */
export function failed(e: unknown, pass: (e: ApiError) => void) {
  const error = e instanceof ApiError ? e : new ApiError(0, String(e));
  if (error.status === 401) session.value = { ended: true };
  else pass(error);
}
