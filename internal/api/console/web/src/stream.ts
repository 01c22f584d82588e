// The stream of changes of the store.

/** News is what the stream says: something has changed, or changes do not arrive or do so again. */
export type News = "changed" | "away" | "back";

/** retry is the time after which a stream that the browser has given up is opened again, in ms. */
const retry = 5000;

/** follow opens the stream, and opens it again until it is told to stop. */
export function follow(tell: (news: News) => void): () => void {
  let source: EventSource;
  let timer = 0;
  let away = false;
  const open = () => {
    source = new EventSource("/v1/events");
    source.addEventListener("change", () => tell("changed"));
    source.addEventListener("reset", () => tell("changed"));
    source.addEventListener("open", () => {
      if (away) tell("back");
      away = false;
    });
    source.addEventListener("error", () => {
      if (!away) tell("away");
      away = true;
      // A browser gives up where the answer is an error, such as one of a server that is starting.
      if (source.readyState === EventSource.CLOSED) timer = setTimeout(open, retry) as unknown as number;
    });
  };
  open();
  return () => {
    clearTimeout(timer);
    source.close();
  };
}
