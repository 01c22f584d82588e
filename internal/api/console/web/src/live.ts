// The changes of the store, as they happen.

import { effect, signal } from "@preact/signals";
import { session } from "./session";
import { follow, type News } from "./stream";

/** changes counts the moments at which something has changed; what is shown is then read again. */
export const changes = signal(0);

/** away: the stream of changes is broken, and the browser tries to open it again. */
export const away = signal(false);

/** pause is the least time between two moments, in ms: where much changes, pages are not read anew for each. */
const pause = 1000;

let timer = 0;

function hear(news: News) {
  away.value = news === "away";
  if (news === "away") return;
  // After "back", too: of what happened meanwhile a server that has started since knows nothing.
  timer ||= window.setTimeout(() => {
    timer = 0;
    changes.value++;
  }, pause);
}

/** connected returns how to begin and end to follow, by the worker of all tabs where the browser has such workers. */
function connected(): { begin: () => void; end: () => void } {
  if (typeof SharedWorker === "undefined") {
    let stop: (() => void) | undefined;
    return {
      begin: () => (stop ??= follow(hear)),
      end: () => {
        stop?.();
        stop = undefined;
      },
    };
  }
  const { port } = new SharedWorker("/assets/live-worker.js");
  port.onmessage = (e: MessageEvent<News>) => hear(e.data);
  return { begin: () => port.postMessage("follow"), end: () => port.postMessage("leave") };
}

const stream = connected();
const shown = signal(true);

// A page that is left keeps no connection, though the browser may keep the page for the way back.
addEventListener("pagehide", () => (shown.value = false));
addEventListener("pageshow", () => (shown.value = true));

effect(() => {
  const who = session.value;
  if (shown.value && who !== undefined && !("ended" in who) && who.admin) stream.begin();
  else {
    stream.end();
    away.value = false;
  }
});
