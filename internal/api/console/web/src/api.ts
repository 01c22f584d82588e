// Calls of the operators' API.

import type { NetworkDetail, PortDetail, PortSummary, TopologyNode } from "./answers";

export class ApiError extends Error {
  constructor(readonly status: number, message: string) {
    super(message);
  }
}

/** call makes a call; the browser adds the session's cookie. */
export async function call<T>(method: string, path: string, body?: unknown): Promise<T> {
  let res: Response;
  try {
    res = await fetch(path, {
      method,
      headers: { Accept: "application/json", "X-Heddle-Console": "1", ...(body === undefined ? {} : { "Content-Type": "application/json" }) },
      body: body === undefined ? undefined : JSON.stringify(body),
    });
  } catch {
    throw new ApiError(0, "The server does not answer. It may be restarting, or this machine is offline.");
  }
  if (res.status === 204) return undefined as T;
  const answer = await res.json().catch(() => ({}));
  if (!res.ok) throw new ApiError(res.status, answer?.error?.message ?? `The server answered ${res.status}.`);
  return answer as T;
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
