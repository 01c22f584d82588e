// Records of flow logs, read from the server and added up.

import { useEffect, useState } from "preact/hooks";
import type { Flow, FlowEnd } from "./answers";
import { type ApiError, lines } from "./api";
import { failed } from "./load";
import { query } from "./router";

/** Talk is what one end has sent to another by one service, with one verdict. */
export interface Talk extends Pick<Flow, "host" | "port" | "source" | "peer" | "peerPort" | "from" | "to" | "protocol" | "icmpType" | "verdict" | "code" | "reply" | "ports"> {
  key: string;
  last: string; // time of the newest record
  service: number; // destination port
  flows: number;
  packets: number;
  bytes: number;
}

/** Cell is the flows from one set of ports to another. */
export interface Cell {
  from: string;
  to: string;
  passed: number;
  dropped: number;
}

export type Sets = "group" | "network";

/** most is the number of talks that are kept: those with the newest records. */
const most = 500;

/** mostCells bounds the pairs of sets. */
const mostCells = 2000;

/** Sums adds records up. */
export class Sums {
  readonly talks = new Map<string, Talk>();
  readonly cells: Record<Sets, Map<string, Cell>> = { group: new Map(), network: new Map() };
  readonly missing = new Map<string, string>(); // reasons, by hosts
  dropped = 0; // talks with older records
  beyond = 0; // flows for whose pairs of sets there was no room
  lost = 0; // records

  add(r: Flow) {
    if (r.lost) this.lost += r.lost;
    else if (r.error) this.missing.set(r.host ?? "", r.error);
    else {
      this.addTalk(r);
      // A single record is part of another one, and an answer of what it answers.
      if (!r.first && !r.reply) for (const by of ["group", "network"] as const) this.addCell(by, r);
    }
  }

  private addTalk(r: Flow) {
    const key = [r.host, r.port, r.source, r.peerPort, r.peer, r.protocol, r.destinationPort, r.icmpType, r.verdict, r.code, r.reply].join(" ");
    const before = this.talks.get(key);
    this.talks.delete(key);
    const counted = r.first ? { flows: 0, packets: 0, bytes: 0 } : { flows: r.flows ?? 0, packets: r.packets ?? 0, bytes: r.bytes ?? 0 };
    this.talks.set(key, {
      ...r,
      key,
      last: r.time ?? "",
      service: r.destinationPort ?? 0,
      flows: (before?.flows ?? 0) + counted.flows,
      packets: (before?.packets ?? 0) + counted.packets,
      bytes: (before?.bytes ?? 0) + counted.bytes,
    });
    if (this.talks.size > most) {
      this.talks.delete(this.talks.keys().next().value!);
      this.dropped++;
    }
  }

  private addCell(by: Sets, r: Flow) {
    const [from, to] = [setOf(by, r.from), setOf(by, r.to)];
    const key = `${from}\n${to}`;
    const cells = this.cells[by];
    const cell = cells.get(key) ?? { from, to, passed: 0, dropped: 0 };
    if (!cells.has(key) && cells.size >= mostCells) {
      this.beyond += r.flows ?? 0;
      return;
    }
    cell[r.verdict === "forward" ? "passed" : "dropped"] += r.flows ?? 0;
    cells.set(key, cell);
  }

  /** newest returns the talks, those with the newest records first. */
  newest(): Talk[] {
    return [...this.talks.values()].sort((a, b) => (a.last < b.last ? 1 : a.last > b.last ? -1 : a.key < b.key ? -1 : 1));
  }
}

/** setOf names the groups or the network of an end. */
function setOf(by: Sets, end: FlowEnd | undefined): string {
  if (!end) return "outside";
  if (by === "network") return end.network.name || end.network.id.slice(0, 8);
  return end.groups.map((g) => g.name || g.id.slice(0, 8)).sort().join(" and ") || "in no group";
}

export interface Flows {
  sums: Sums;
  error?: ApiError;
  /** state is "away" while records that come do not arrive. */
  state: "reading" | "read" | "following" | "away";
}

/** retry is the time after which a stream that has ended is opened again, and pause that between two renderings, in ms. */
const retry = 5000;
const pause = 500;

/** useFlows reads what hosts remember, or with live what comes from now on. */
export function useFlows(filter: Record<string, string>, live: boolean): Flows & { again: () => void } {
  const path = query("/v1/flows", { ...filter, follow: live ? "true" : "" });
  const [shown, setShown] = useState<Flows>({ sums: new Sums(), state: "reading" });
  const [turn, setTurn] = useState(0);
  useEffect(() => {
    const sums = new Sums();
    const leave = new AbortController();
    let timer = 0;
    const show = (state: Flows["state"], error?: ApiError) => {
      clearTimeout(timer);
      timer = 0;
      if (!leave.signal.aborted) setShown({ sums, state, error });
    };
    const read = async () => {
      show(live ? "following" : "reading");
      let error: ApiError | undefined;
      try {
        await lines<Flow>(path, leave.signal, (r) => {
          sums.add(r);
          timer ||= window.setTimeout(() => show(live ? "following" : "reading"), pause);
        });
      } catch (e) {
        if (!leave.signal.aborted) failed(e, (x) => (error = x));
      }
      if (leave.signal.aborted) return;
      const refused = error && error.status >= 400 && error.status < 500;
      if (!live || refused) show("read", error);
      else {
        show("away");
        timer = window.setTimeout(read, retry);
      }
    };
    void read();
    return () => {
      leave.abort();
      clearTimeout(timer);
    };
  }, [path, turn]);
  return { ...shown, again: () => setTurn(turn + 1) };
}
