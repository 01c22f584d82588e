import { signal } from "@preact/signals";
import { ApiError, call, type Session } from "./api";

/** session is who is logged in; undefined until the server has been asked. */
export const session = signal<Session | { ended: boolean } | undefined>(undefined);

/** isAdmin reports whether who is logged in may see everything. */
export function isAdmin(): boolean {
  const who = session.value;
  return who !== undefined && !("ended" in who) && who.admin;
}

/** resume asks who is logged in. */
export async function resume() {
  try {
    session.value = await call<Session>("GET", "/v1/session");
  } catch (e) {
    session.value = { ended: false };
    if (!(e instanceof ApiError) || e.status !== 401) throw e;
  }
}

const renewEvery = 60_000;
let renewed = Date.now();

// The session goes on while the page is used, not while it is merely open.
for (const event of ["pointerdown", "keydown"]) {
  addEventListener(event, () => {
    if (session.value === undefined || "ended" in session.value || Date.now() - renewed < renewEvery) return;
    renewed = Date.now();
    call<Session>("GET", "/v1/session").catch((e) => {
      if (e instanceof ApiError && e.status === 401) session.value = { ended: true };
    });
  });
}
