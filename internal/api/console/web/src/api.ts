// Calls of the operators' API.

import type { NetworkDetail, PortDetail, PortSummary, TopologyNode } from "./answers";

export class ApiError extends Error {
  constructor(readonly status: number, message: string) {
    super(message);
  }
}

/** request makes a call; the browser adds the session's cookie. */
async function request(method: string, path: string, body?: unknown, signal?: AbortSignal): Promise<Response> {
  let res: Response;
  try {
    res = await fetch(path, {
      method,
      headers: { Accept: "application/json", "X-Heddle-Console": "1", ...(body === undefined ? {} : { "Content-Type": "application/json" }) },
      body: body === undefined ? undefined : JSON.stringify(body),
      signal,
    });
  } catch {
    throw new ApiError(0, "The server does not answer. It may be restarting, or this machine is offline.");
  }
  if (res.ok) return res;
  const answer = await res.json().catch(() => ({}));
  throw new ApiError(res.status, answer?.error?.message ?? `The server answered ${res.status}.`);
}

/** call returns the answer to a call. */
export async function call<T>(method: string, path: string, body?: unknown): Promise<T> {
  const res = await request(method, path, body);
  return (res.status === 204 ? undefined : await res.json().catch(() => ({}))) as T;
}

/** lines passes each line of an answer on as it comes, until the answer ends. */
export async function lines<T>(path: string, signal: AbortSignal, pass: (line: T) => void): Promise<void> {
  const reader = (await request("GET", path, undefined, signal)).body!.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    const parts = (rest + value).split("\n");
    rest = parts.pop()!;
    for (const part of parts) if (part !== "") pass(JSON.parse(part));
  }
}

export type { Found, Health, History, PortStates, PortSummary, ReachAnswer, Rule, RouterEnd, Revision, ServiceRange, Topology, WhyAnswer } from "./answers";
export type { GroupDetail as Group, HostStatus as Host, NetworkDetail as Network, PortDetail as Port, RouterDetail as Router, TopologyNode as Node } from "./answers";
export type { TraceName as Name, WhyEnd as End, WhyLeg as Leg } from "./answers";

export type PortState = PortSummary["state"];
export type Kind = TopologyNode["kind"];

/** PortList is a page of ports, and how many there are in all. */
export type PortList = Pick<NetworkDetail, "ports" | "from" | "total">;

/** Thing has what all objects have. */
export type Thing = Pick<PortDetail, "id" | "name" | "description" | "project_id" | "revision">;

export interface Session {
  user: string;
  project: string;
  admin: boolean;
  expires_at: string;
}

export interface JoinedHost {
  id: string;
  name: string;
  tunnel_ip: string;
  mtu: number;
  roles: string[];
  joined_at: string | null;
  started_at: string | null;
}
