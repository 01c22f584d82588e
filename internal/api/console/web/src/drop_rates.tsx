import { useRef } from "preact/hooks";
import type { Drops } from "./answers";
import { useLoad } from "./load";
import { Measured, type Sample, useSamples } from "./measured";
import { Await } from "./parts";
import { Link } from "./router";

/** mostCodes is the number of lines; further codes are added up in the last. */
const mostCodes = 6;

/** counted adds up packets by code, with what has counted them. */
function counted(d: Drops): { codes: Record<string, number>; by: string } {
  const codes: Record<string, number> = {};
  for (const x of d.drops) codes[x.code ?? ""] = (codes[x.code ?? ""] ?? 0) + x.packets;
  return { codes, by: d.hosts.map((h) => `${h.name} ${h.since ?? ""} ${h.error ?? ""} ${h.left ?? 0}`).join("\n") };
}

/** rates returns the packets of a second between two answers; undefined where they are not of the same counters. */
function rates(before: { drops: Drops; time: number }, now: { drops: Drops; time: number }): Sample | undefined {
  const [a, b] = [counted(before.drops), counted(now.drops)];
  const seconds = now.time - before.time;
  if (a.by !== b.by || seconds <= 0) return undefined;
  const all = Object.entries(b.codes).sort((x, y) => y[1] - x[1]);
  const values: Record<string, number> = {};
  all.forEach(([code, packets], i) => {
    const name = all.length > mostCodes && i >= mostCodes - 1 ? "others" : code;
    values[name] = (values[name] ?? 0) + Math.max(0, packets - (a.codes[code] ?? 0)) / seconds;
  });
  return { time: now.time, values };
}

/** DropRates shows how many packets of a second are dropped, by code. */
export function DropRates() {
  const drops = useLoad<Drops>("/v1/drops", 10, false);
  const last = useRef<{ drops: Drops; time: number }>(undefined);
  const sample = useRef<Sample | undefined>(undefined);
  if (drops.data && drops.data !== last.current?.drops) {
    const now = { drops: drops.data, time: drops.at!.getTime() / 1000 };
    sample.current = last.current && rates(last.current, now);
    last.current = now;
  }
  const samples = useSamples(sample.current);
  return (
    <section aria-labelledby="rates">
      <h2 id="rates">Dropped packets a second</h2>
      <Await of={drops}>
        {(d) =>
          d.drops.length === 0 ? (
            <p class="quiet">No packet was dropped since the agents of the hosts started.</p>
          ) : (
            <>
              <p class="quiet">By code, as measured every 10 seconds while this page is open. <Link to="/drops">Show drops since the start</Link></p>
              {samples.length === 0 ? <p class="quiet" role="status">Measuring: the first value comes in 10 seconds.</p> : <Measured label="Dropped packets a second" of={samples} unit="" />}
            </>
          )
        }
      </Await>
    </section>
  );
}
