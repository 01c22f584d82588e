// Calls of the operators' API, and the words of its answers.

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

export interface Session {
  user: string;
  project: string;
  admin: boolean;
  expires_at: string;
}

export interface Problem {
  what: string;
  fix: string;
}

export interface Server {
  name: string;
  role: string;
  version: string;
  started_at: string;
}

export interface Certificate {
  name: string;
  end: string;
  renewed: boolean;
}

export interface StoreMember {
  name: string;
  leader: boolean;
  size: number;
  quota: number;
  problem?: string;
}

export interface Health {
  revision: number;
  problems: Problem[];
  servers: Server[];
  store: { members: StoreMember[]; written: number; newest: number };
  certificates: Certificate[];
  hosts: { total: number; alive: number };
  ports: { bound: number; active: number; down: number; failing: number; binding_failed: number };
}

export interface TableFill {
  name: string;
  used: number;
  max: number;
}

export interface Host {
  id: string;
  name: string;
  alive: boolean;
  version?: string;
  cut_off?: string;
  ports: number;
  overlay: boolean;
  answered: boolean;
  ahead_ms?: number;
  tunnels?: number;
  certificateEnd?: string;
  tables?: TableFill[];
  faults?: string[];
}

export interface Name {
  kind: string;
  name?: string;
}

export interface Step {
  device?: string;
  chain?: string;
  rule?: string;
  code?: string;
  text: string;
}

export interface Leg {
  allowed: boolean;
  port?: string;
  reason: string;
  nearest?: { group: string; rule?: string; text: string; fails: string[] }[];
  trace: { liveState: boolean; hostId: string; code?: string; walk: Step[] };
}

export interface End {
  port?: string;
  name?: string;
  address: string;
  host?: string;
}

export interface WhyAnswer {
  verdict: "allowed" | "denied" | "one-way";
  revision: number;
  from: End;
  to: End;
  service: string;
  there: Leg;
  back?: Leg;
  remedies: { text: string; command: string[] }[] | null;
  names: Record<string, Name> | null;
}

export interface PortStates {
  total: number;
  active: number;
  down: number;
  unbound: number;
  off: number;
  routed: number;
}

export type Kind = "outside" | "uplink" | "external" | "router" | "network" | "project" | "ports" | "port";

export interface Node {
  id: string;
  kind: Kind;
  name: string;
  detail?: string;
  state?: PortState;
  ports?: PortStates;
  networks?: number;
  routers?: number;
}

export interface Topology {
  revision: number;
  nodes: Node[];
  edges: { from: string; to: string }[];
  folded: boolean;
  left_out: number;
}

export type PortState = "active" | "down" | "unbound" | "off" | "routed";

export interface Named {
  id: string;
  name: string;
}

export interface PortSummary extends Named {
  addresses: string[];
  network: Named;
  host: Named | null;
  state: PortState;
  device_owner: string;
}

export interface Thing extends Named {
  description: string;
  project_id: string;
  revision: number;
}

export interface PortList {
  ports: PortSummary[];
  from: number;
  total: number;
}

export interface Rule {
  id: string;
  direction: string;
  ethertype: string;
  protocol: string;
  ports: string;
  remote: string;
  remote_group: Named | null;
  description: string;
}

export interface Group extends Thing {
  stateful: boolean;
  rules: Rule[];
}

export interface Port extends Thing {
  summary: PortSummary;
  mac_address: string;
  interface: string;
  device_id: string;
  router: Named | null;
  floating_ips: Named[];
  port_security: boolean;
  groups: Group[];
}

export interface Network extends Thing, PortList {
  type: string;
  physical_network: string;
  segmentation_id: number | null;
  mtu: number;
  external: boolean;
  admin_up: boolean;
  subnets: (Named & { cidr: string; gateway: string | null; dhcp: boolean })[];
  routers: Named[];
}

export interface RouterEnd {
  port: Named;
  network: Named;
  addresses: string[];
  snat: boolean;
}

export interface Router extends Thing {
  admin_up: boolean;
  gateways: RouterEnd[];
  interfaces: RouterEnd[];
  routes: { destination: string; nexthop: string }[];
  floating_ips: { address: string; port: Named | null }[];
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

export interface Found extends Named {
  kind: string;
  detail?: string;
}
