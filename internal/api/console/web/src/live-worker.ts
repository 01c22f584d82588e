// One stream of changes for all tabs: a browser makes only six connections to a server without HTTP/2, and each stream keeps one.

import { follow, type News } from "./stream";

const tabs = new Set<MessagePort>();
let stop: (() => void) | undefined;
let away = false;

function tell(news: News) {
  away = news === "away";
  for (const tab of tabs) tab.postMessage(news);
}

self.addEventListener("connect", (e) => {
  const [tab] = (e as MessageEvent).ports;
  tab.onmessage = ({ data }) => {
    if (data === "follow") tabs.add(tab);
    else tabs.delete(tab);
    if (away && data === "follow") tab.postMessage("away" satisfies News);
    if (tabs.size > 0) stop ??= follow(tell);
    else {
      stop?.();
      stop = undefined;
      away = false;
    }
  };
});
