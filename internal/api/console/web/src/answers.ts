// Types of the operators' API, made from those of the server: make generate.

/** AddressRange is a range of addresses. */
export interface AddressRange {
  first: string;
  last: string;
}

/** AssertAnswer is a list of the results of rules, in their order. */
export interface AssertAnswer {
  refused?: RefusedStep[];
  results: AssertResult[];
  revision: number;
  time?: string;
}

/** AssertEnds is a pair of selections: who reaches whom. */
export interface AssertEnds {
  from?: "outside" | Selection;
  to?: "outside" | Selection;
}

/** AssertRequest is a list of rules about who reaches whom, to be held to the virtual network. */
export interface AssertRequest {
  at?: string;
  rules?: Assertion[];
  with?: ChangeStep[];
}

/** AssertResult is the result of one rule. */
export interface AssertResult {
  breaches: number;
  examples: Breach[];
  pairs: number;
}

/** AssertService is a service of a rule. */
export interface AssertService {
  port?: number;
  proto?: string;
  to_port?: number;
}

/** Assertion is one rule: no machine of one selection ever reaches one of another but by some services, or all always do by some services. */
export interface Assertion {
  always?: AssertEnds;
  but?: AssertService[];
  by?: AssertService[];
  never?: AssertEnds;
}

/** Author is the request that made a change, and its user. */
export interface Author {
  api: string;
  application_credential_id?: string;
  body?: string;
  client?: string;
  cut?: boolean;
  method: string;
  path?: string;
  project_id?: string;
  request_id: string;
  summary: string;
  time: string;
  user?: string;
  user_id?: string;
}

/** BGPPeer is a router's session with a peer. */
export interface BGPPeer {
  address: string;
  advertised: number;
  as: number;
  id: string;
  last_error?: string;
  name: string;
  received: number;
  refused: number;
  since?: string;
  state: string;
}

/** BGPRouter is a router that speaks BGP. */
export interface BGPRouter {
  announced: string[];
  as: number;
  host?: string;
  id: string;
  identifier?: string;
  learned: number;
  message?: string;
  name: string;
  peers: BGPPeer[];
  status: string;
}

/** bgpAnswer is a list of all routers that speak BGP, by name. */
export interface BgpAnswer {
  routers: BGPRouter[];
}

/** Breach is a pair of ends that breaks a rule. */
export interface Breach {
  from: WhyEnd;
  services: ServiceRange[];
  to: WhyEnd;
  why?: WhyAnswer;
}

/** Certificate is a certificate of this server. */
export interface Certificate {
  authority: boolean;
  end: string;
  name: string;
  renewed: boolean;
}

/** ChangeEnds are the ends of connections on one side: machines, or addresses outside. */
export interface ChangeEnds {
  outside?: AddressRange[];
  ports?: ReachPort[];
  text?: string;
}

/** changeEvent is a revision of the store, with what changed. */
export interface ChangeEvent {
  changes: ObjectChanged[];
  revision: number;
}

/** ChangeExample is one packet whose fate differs. */
export interface ChangeExample {
  from: WhyEnd;
  service: string;
  to: WhyEnd;
  why?: WhyAnswer;
}

/** ChangeStep is a request to make, change or delete one object of Neutron's, as heddle translate reads it. */
export interface ChangeStep {
  data?: unknown;
  op?: string;
  type?: string;
}

/** ChangedField is a field of an object. An entry of a list has the name "list[id]", or "list[]" without an id. */
export interface ChangedField {
  after?: unknown;
  before?: unknown;
  name: string;
}

/** ChangedObject is an object with what changed of it. */
export interface ChangedObject {
  change: string;
  fields?: ChangedField[];
  id: string;
  key: string;
  kind: string;
  name?: string;
}

/** ClusterMember is a server in a cluster of embedded stores. */
export interface ClusterMember {
  alive: boolean;
  learner: boolean;
  learner_since?: string;
  name: string;
  peer_url: string;
}

/** ConnKey names one direction of a tracked connection within a device. Both ports are the id of an ICMP echo, and 0 for protocols without ports. */
export interface ConnKey {
  device: string;
  dst: string;
  dstPort: number;
  ingress?: boolean;
  proto: number;
  src: string;
  srcPort: number;
}

/** Connection is the state of a connection as a step has met it. */
export interface Connection {
  idleSeconds?: number;
  key: ConnKey;
  known: boolean;
  new?: boolean;
}

/** ConnectionsAnswer is the answer to a [ConnectionsRequest]. */
export interface ConnectionsAnswer {
  count: number;
  examples: OpenConnection[];
}

/** CountedHost is a host that was asked for its counters. */
export interface CountedHost {
  error?: string;
  left?: number;
  name: string;
  plane: string;
  since?: string;
  unsettled?: number;
}

/** Counter is the number of packets with one decision. */
export interface Counter {
  bytes: number;
  chain?: string;
  code?: string;
  device?: string;
  direction?: string;
  object?: Object;
  packets: number;
  portId?: string;
  rule?: string;
}

/** CountersAnswer is the answer to a [CountersRequest]. */
export interface CountersAnswer {
  asked?: PortAsked[];
  counters: Counter[];
  left?: number;
  since: string;
  unsettled?: number;
}

/** CutConnection is one connection, as the host has it that its packets enter by. */
export interface CutConnection {
  destination: string;
  host: string;
  protocol: number;
  source: string;
}

/** CutConnections is the connections of the last minute that a change would end, but for those whose end was seen. */
export interface CutConnections {
  count: number;
  examples: CutConnection[];
  missing?: CountedHost[];
}

/** DiffAnswer is the answer. Nothing of it has been done. */
export interface DiffAnswer {
  cut?: CutConnections;
  gained: ReachChange[];
  lost: ReachChange[];
  names: Record<string, TraceName>;
  objects: ChangedObject[];
  pairsOmitted?: number;
  refused: RefusedStep[];
  revision: number;
  time?: string;
  until?: number;
  untilTime?: string;
  warnings: DiffWarning[];
}

/** DiffRequest is the question what a change would do, or what has changed between two times. */
export interface DiffRequest {
  at?: string;
  change?: ChangeStep[];
  from?: string;
  to?: string;
}

/** DiffWarning is something about a change that deserves a second look. */
export interface DiffWarning {
  by?: string;
  kind: "opens-to-outside" | "rule-without-effect" | "locks-out";
  object: Object;
  text: string;
}

/** Drop is the number of packets that were dropped at a port, on their way from it or by the policy of routed hosts, for one reason. */
export interface Drop {
  bytes: number;
  chain?: string;
  code?: string;
  device?: string;
  direction?: string;
  hosts: string[];
  object?: Object;
  packets: number;
  plane: string;
  port?: Object;
  portId?: string;
  rule?: string;
}

/** Drops holds what hosts have counted of packets that decisions dropped. */
export interface Drops {
  drops: Drop[];
  hosts: CountedHost[];
}

/** Effect is the connections between machines, and between them and outside, that fare otherwise by a change. */
export interface Effect {
  gained: ReachChange[];
  lost: ReachChange[];
  notCompared?: string;
  pairsOmitted?: number;
}

export interface Floating {
  address: string;
  port: Name | null;
}

/** Flow is a record of a host's flow log, with the names of what it is about. */
export interface Flow {
  begins?: string;
  bytes?: number;
  code?: string;
  destinationPort?: number;
  error?: string;
  first?: boolean;
  flows?: number;
  from?: FlowEnd;
  host?: string;
  icmpCode?: number;
  icmpType?: number;
  left?: number;
  lost?: number;
  nat?: FlowNAT;
  network?: string;
  packets?: number;
  peer?: string;
  peerPort?: string;
  port?: string;
  ports?: number;
  project?: string;
  protocol?: number;
  reply?: boolean;
  rules?: string[];
  source?: string;
  sourcePort?: number;
  time?: string;
  to?: FlowEnd;
  verdict?: string;
}

/** FlowEnd is a port at an end of a flow. */
export interface FlowEnd {
  groups: Object[];
  name: string;
  network: Object;
}

/** FlowNAT has the addresses and ports with which a packet leaves. */
export interface FlowNAT {
  destination: string;
  source: string;
}

/** Formats holds the format that the store is in, and those that its live members know. */
export interface Formats {
  members: Reader[];
  min_reader: number;
  newest: number;
  silent: Silent[];
  written: number;
}

/** foundView is an object that a search has found. */
export interface Found {
  detail?: string;
  id: string;
  kind: string;
  name: string;
}

/** FullDisk describes the full disk of a server's data directory. */
export interface FullDisk {
  dir: string;
  free_mib: number;
  needed_mib: number;
}

/** Gap is a part of the past that was not recorded, or cannot be read. */
export interface Gap {
  after: number;
  after_time: string;
  reason?: string;
  until: number;
  until_time: string;
}

/** groupDetail is a security group with its rules. */
export interface GroupDetail {
  description: string;
  from?: number;
  id: string;
  name: string;
  ports?: PortSummary[];
  project_id: string;
  revision: number;
  rules: Rule[];
  stateful: boolean;
  total?: number;
}

/** Headers are those of a packet that routers and translations change. */
export interface Headers {
  dst: string;
  dstMac: string;
  dstPort: number;
  src: string;
  srcMac: string;
  srcPort: number;
}

/** healthView is the status of all of Heddle with hosts and ports counted: of a large cloud it stays small. */
export interface Health {
  certificates: Certificate[];
  cluster: ClusterMember[];
  hosts: HostCounts;
  ports: PortCounts;
  problems: Problem[];
  revision: number;
  servers: Server[];
  store: Store;
}

/** History is a page of what changed, the newest first. */
export interface History {
  begins?: string;
  changes: Revision[];
  epoch: number;
  gaps: Gap[];
  names: Record<string, TraceName>;
  next?: string;
  problem?: string;
  revision: number;
}

export interface HostCounts {
  alive: number;
  total: number;
}

/** HostReport is the state of a host at one moment, which its agent reports on request. */
export interface HostReport {
  certificateEnd?: string;
  deadTunnels?: TunnelReport[];
  failing?: Record<string, string>;
  faults?: string[];
  tables?: TableFill[];
  time: string;
  traffic?: TrafficReport;
  tunnels: number;
  uncarried?: string[];
  unreachable?: string;
}

/** HostRoute is a route that DHCP hands to the machines of a subnet. */
export interface HostRoute {
  destination: string;
  nexthop: string;
}

/** hostStatus is a host, with what its agent reports if it does. */
export interface HostStatus {
  ahead_ms?: number;
  alive: boolean;
  answered: boolean;
  certificateEnd?: string;
  cut_off?: string;
  deadTunnels?: TunnelReport[];
  displaced?: string[];
  failing?: Record<string, string>;
  faults?: string[];
  id: string;
  name: string;
  overlay: boolean;
  ports: number;
  tables?: TableFill[];
  time?: string;
  traffic?: TrafficReport;
  tunnels?: number;
  unasked?: string;
  uncarried?: string[];
  unreachable?: string;
  version?: string;
}

/** MissingKey describes a missing file with a server's key. */
export interface MissingKey {
  file: string;
  loaded: boolean;
  lost_store?: string;
}

/** NATEntry is one translation. */
export interface NATEntry {
  addr: string;
  device: string;
  dst: string;
  dstPort: number;
  kind: string;
  life?: number;
  port: number;
  proto: number;
  src: string;
  srcPort: number;
}

/** nameView names an object. */
export interface Name {
  id: string;
  name: string;
}

/** NearestRule is a rule of a security group that does not allow a packet, and why. */
export interface NearestRule {
  fails: string[];
  group: string;
  rule?: string;
  text: string;
}

/** networkDetail is a network with its subnets, routers and ports. */
export interface NetworkDetail {
  admin_up: boolean;
  description: string;
  external: boolean;
  from: number;
  id: string;
  mtu: number;
  name: string;
  physical_network: string;
  ports: PortSummary[];
  project_id: string;
  revision: number;
  routers: Name[];
  segmentation_id: number | null;
  subnets: Subnet[];
  total: number;
  type: string;
}

/** NetworkReport counts what a host's ports in a network have sent. */
export interface NetworkReport {
  bytes: number;
  id: string;
  packets: number;
}

/** NetworkTraffic counts what a host's ports have sent in a network. */
export interface NetworkTraffic {
  bytes: number;
  id: string;
  name: string;
  packets: number;
}

/** Object is an object of a user's. */
export interface Object {
  group?: Object;
  id: string;
  kind: string;
  name?: string;
}

/** objectChanged is an object that changed. */
export interface ObjectChanged {
  change: string;
  id: string;
  kind: string;
}

/** OpenConnection is a connection that goes on, as far as its host knows. */
export interface OpenConnection {
  destination: string;
  protocol: number;
  source: string;
}

/** physicalNetworkView is a physical network that the cloud uses. */
export interface PhysicalNetwork {
  carriers: number;
  name: string;
  networks: string[];
}

export interface Port {
  host: string;
  id: string;
  name: string;
  reason?: string;
}

/** PortAsked is a port to whose rules of one direction packets other than replies have come. */
export interface PortAsked {
  direction: string;
  portId: string;
}

/** portCounts counts the ports that [portsView] lists. */
export interface PortCounts {
  active: number;
  binding_failed: number;
  bound: number;
  down: number;
  failing: number;
}

/** portDetail is a port with all that concerns it. */
export interface PortDetail {
  description: string;
  device_id: string;
  floating_ips: Name[];
  groups: GroupDetail[];
  id: string;
  interface: string;
  mac_address: string;
  name: string;
  other_groups?: number;
  port_security: boolean;
  project_id: string;
  revision: number;
  router: Name | null;
  summary: PortSummary;
}

/** portList is a page of ports, and how many there are in all. */
export interface PortList {
  from: number;
  ports: PortSummary[];
  total: number;
}

/** PortReport counts what a port makes its host do. */
export interface PortReport {
  flows: number;
  id: string;
  lanOf?: string;
  upcalls: number;
}

/** portStates counts ports by their state. */
export interface PortStates {
  active: number;
  down: number;
  off: number;
  routed: number;
  total: number;
  unbound: number;
}

/** portSummary is a port in a list. */
export interface PortSummary {
  addresses: string[];
  device_owner: string;
  host: Name | null;
  id: string;
  name: string;
  network: Name;
  state: "active" | "down" | "unbound" | "off" | "routed";
}

/** PortTraffic counts what a port makes its host do. */
export interface PortTraffic {
  flows: number;
  id: string;
  lanOf?: string;
  name: string;
  upcalls: number;
}

/** portsView counts the ports that belong to machines of virtual networks. */
export interface Ports {
  active: number;
  binding_failed: Port[];
  bound: number;
  down: Port[];
  failing: Port[];
}

/** Probe is one thing to try. Those with a target try to reach another workload, by the version of IP of its address. */
export interface Probe {
  kind?: "dhcp" | "metadata" | "arp" | "ndp" | "icmp" | "mtu" | "tcp" | "udp" | "blocked";
  mac?: string;
  target?: string;
}

/** ProbeResult is the result of a probe. */
export interface ProbeResult {
  detail: string;
  passed: boolean;
  took: number;
}

/** problem is something that an operator should mend. */
export interface Problem {
  fix: string;
  what: string;
}

/** Quote is the rewritten part of the packet that an ICMP error quotes. */
export interface Quote {
  dst: string;
  dstPort: number;
  src: string;
  srcPort: number;
}

/** Reach is some services, and the ends that reach or are reached by exactly these. */
export interface Reach {
  always?: ServiceRange[];
  may?: ServiceRange[];
  oneWay?: ServiceRange[];
  outside?: ReachOutside[];
  ports?: ReachPort[];
  version: number;
}

/** ReachAnswer is the answer. */
export interface ReachAnswer {
  from?: WhyEnd;
  names?: Record<string, TraceName>;
  pairs?: ReachPairs[];
  pairsOmitted?: number;
  reaches: Reach[];
  refused?: RefusedStep[];
  revision: number;
  service?: string;
  silent: number;
  time?: string;
  to?: WhyEnd;
}

/** ReachChange is some services whose connections between some ends fare otherwise. */
export interface ReachChange {
  after: "never" | "oneWay" | "may" | "always";
  before: "never" | "oneWay" | "may" | "always";
  example: ChangeExample;
  from: ChangeEnds;
  pairs: number;
  services: ServiceRange[];
  to: ChangeEnds;
  version: number;
}

/** ReachOutside is addresses outside. */
export interface ReachOutside {
  address: string;
  ranges: AddressRange[];
  text: string;
}

/** ReachPairs is the number of pairs of a machine of one set and another of a second. */
export interface ReachPairs {
  all: number;
  from: string;
  may?: number;
  oneWay?: number;
  reached: number;
  to: string;
}

/** ReachPort is a port at the other end. */
export interface ReachPort {
  address: string;
  groups?: string[];
  name?: string;
  port: string;
}

/** ReachRequest is the question who can reach a machine, or what a machine can reach. */
export interface ReachRequest {
  at?: string;
  by?: string;
  from?: string;
  port?: number;
  protocol?: string;
  to?: string;
  version?: number;
  with?: ChangeStep[];
}

/** Reader is a program that works with the store. */
export interface Reader {
  behind: boolean;
  id: string;
  name: string;
  reads: number;
  role: string;
  version: string;
  writes: number;
}

/** RefusedStep is a step of a change that the server would refuse. */
export interface RefusedStep {
  kind: string;
  message: string;
  status: number;
  step: number;
}

/** Remedy is a change that would let packets pass. It was tried in memory, and is not made. */
export interface Remedy {
  command: string[];
  input?: string;
  text: string;
}

/** Revision is all that changed in one revision of the store. */
export interface Revision {
  author: Author | null;
  derived?: string[];
  effect?: Effect;
  epoch: number;
  objects: ChangedObject[];
  revision: number;
  time: string;
}

/** Rewrite holds the headers with which a packet leaves, after routing and NAT. Fields that were not changed have the packet's own values. */
export interface Rewrite {
  dst: string;
  dstMac: string;
  dstPort: number;
  hops: number;
  quote?: Quote;
  src: string;
  srcMac: string;
  srcPort: number;
}

/** RouteChoice is a route to a packet's destination, and whether the packet takes it. */
export interface RouteChoice {
  id: string;
  object?: Object;
  text: string;
  to: string;
  whyNot?: string;
}

/** routerDetail is a router with its ports, routes and floating IPs. */
export interface RouterDetail {
  admin_up: boolean;
  description: string;
  floating_ips: Floating[];
  gateways: RouterEnd[];
  id: string;
  interfaces: RouterEnd[];
  name: string;
  project_id: string;
  revision: number;
  routes: HostRoute[];
}

/** routerEnd is a router's port on a network. */
export interface RouterEnd {
  addresses: string[];
  network: Name;
  port: Name;
  snat: boolean;
}

/** ruleView is a rule of a security group. */
export interface Rule {
  description: string;
  direction: string;
  ethertype: string;
  id: string;
  ports: string;
  protocol: string;
  remote: string;
  remote_group: Name | null;
}

/** searchAnswer is a list of what a search has found. */
export interface SearchAnswer {
  found: Found[];
  total: number;
}

/** Selection is the machines that one of its members names; by Outside all addresses outside. */
export interface Selection {
  group?: string;
  network?: string;
  outside?: boolean;
  port?: string;
  project?: string;
  tag?: string;
}

export interface Server {
  full_disk?: FullDisk;
  missing_key?: MissingKey;
  name: string;
  role: string;
  started_at: string;
  version: string;
}

/** ServiceRange is services of one protocol, or several protocols as a whole. */
export interface ServiceRange {
  high?: number;
  low?: number;
  protocol: string;
  text: string;
}

/** Silent is a server of a cluster, or the agent of a host, that does not report the formats it reads and writes. */
export interface Silent {
  name: string;
  role: string;
}

/** State holds the connections and translations that packets leave behind: by it their replies are known. */
export interface State {
  connections: ConnKey[];
  translations: NATEntry[];
}

/** statusView is the status of all of Heddle: Problems first. */
export interface Status {
  certificates: Certificate[];
  cluster: ClusterMember[];
  hosts: HostStatus[];
  journal?: string;
  physical_networks: PhysicalNetwork[];
  ports: Ports;
  problems: Problem[];
  servers: Server[];
  store: Store;
}

/** Step is one line of a trace: what happened, what decided it, and what it rests on. */
export interface Step {
  after?: Headers;
  before?: Headers;
  chain?: string;
  code?: string;
  connection?: Connection;
  device: string;
  kind?: "in" | "out" | "drop" | "wait" | "filter" | "connection" | "translation" | "balance" | "route" | "next-hop" | "path" | "flood" | "learn" | "answer" | "redirect" | "vlan" | "vxlan" | "local-ip" | "limit" | "copy" | "log" | "metadata";
  object?: Object;
  purpose?: string;
  routes?: RouteChoice[];
  rule?: string;
  text: string;
  translation?: Translation;
}

/** storeView is the store's members and its format. */
export interface Store {
  members: StoreMember[];
  newest: number;
  written: number;
}

/** StoreMember is a member of the store, as its server reports it. */
export interface StoreMember {
  fix?: string;
  leader: boolean;
  name: string;
  problem?: string;
  quota: number;
  size: number;
}

export interface Subnet {
  cidr: string;
  dhcp: boolean;
  gateway: string | null;
  id: string;
  name: string;
}

/** SupportAnswer is the answer to a topology.SupportRequest. */
export interface SupportAnswer {
  error?: string;
  part?: string;
  size: number;
}

/** supportRequest is the body of POST /v1/support: the part of a support bundle of a host that follows an offset. */
export interface SupportRequest {
  anonymise?: boolean;
  bundle?: string;
  host?: string;
  hours?: number;
  offset?: number;
}

/** TableFill is the fill of a table of a host. */
export interface TableFill {
  max: number;
  name: string;
  used: number;
}

/** topologyView is the virtual network, or a part of it, as a graph. */
export interface Topology {
  edges: TopologyEdge[];
  folded: boolean;
  left_out: number;
  nodes: TopologyNode[];
  revision: number;
}

export interface TopologyEdge {
  from: string;
  to: string;
}

export interface TopologyNode {
  detail?: string;
  id: string;
  kind: "outside" | "uplink" | "external" | "router" | "network" | "project" | "ports" | "port";
  name: string;
  networks?: number;
  ports?: PortStates;
  routers?: number;
  state?: "active" | "down" | "unbound" | "off" | "routed";
}

/** TraceAnswer is the answer to a [TraceRequest], as `heddle trace` prints it. */
export interface TraceAnswer {
  code?: string;
  connections?: ConnectionsAnswer;
  copies?: TraceOutput[];
  counters?: CountersAnswer;
  device?: string;
  error?: string;
  frame?: string;
  hostId: string;
  id: string;
  liveState: boolean;
  names?: Record<string, TraceName>;
  outputs?: TraceOutput[];
  reason?: string;
  replies?: TraceReply[];
  report?: HostReport;
  rewrite?: Rewrite;
  state?: State;
  support?: SupportAnswer;
  verdict: string;
  walk: Step[];
  workload?: WorkloadAnswer;
}

/** TraceName is the kind and name of an object. */
export interface TraceName {
  kind: string;
  name?: string;
}

/** TraceOutput is a port that gets the frame. */
export interface TraceOutput {
  hostId: string;
  portId: string;
}

/** TraceReply is a frame that the virtual network sends to a port. */
export interface TraceReply {
  frame: string;
  portId: string;
}

/** traceRequest is the body of POST /v1/traces. */
export interface TraceRequest {
  frame?: string;
  host?: string;
  network?: string;
  port?: string;
}

/** Traffic holds the tunnels of a host, what its ports have sent in each network, and which of them keep it busy. */
export interface Traffic {
  host: string;
  networks: NetworkTraffic[];
  ports: PortTraffic[];
  tunnels: TunnelReport[];
}

/** TrafficReport holds the tunnels of a host, what its ports have sent in each network, and which of them keep it busy. */
export interface TrafficReport {
  networks: NetworkReport[];
  ports?: PortReport[];
  tunnels: TunnelReport[];
}

/** Translation is the state of NAT as a step has met it: what became of an address and port. */
export interface Translation {
  device: string;
  from: string;
  host?: string;
  idleSeconds?: number;
  kind: string;
  new?: boolean;
  to: string;
}

/** TunnelDirection is one direction of a tunnel. */
export interface TunnelDirection {
  bytes: number;
  lost: number;
  packets: number;
  state: "unknown" | "alive" | "dead";
}

/** TunnelReport is the state of the tunnel to another host. */
export interface TunnelReport {
  address: string;
  host: string;
  in: TunnelDirection;
  name: string;
  out: TunnelDirection;
}

/** UnusedRule is a rule by which no packet was let pass, or which none has matched. */
export interface UnusedRule {
  asked: boolean;
  group: Object;
  ports: number;
  rule: string;
  text: string;
}

/** UnusedRules holds the rules of security groups by which no packet was let pass, and the rules of policies and profiles that no packet has matched. */
export interface UnusedRules {
  hosts: CountedHost[];
  rules: UnusedRule[];
}

/** WhyAnswer is the answer whether a new connection would pass in both directions. */
export interface WhyAnswer {
  back?: WhyLeg;
  from: WhyEnd;
  names?: Record<string, TraceName>;
  refused?: RefusedStep[];
  remedies: Remedy[];
  revision: number;
  service: string;
  since?: WhySince;
  there: WhyLeg;
  time?: string;
  to: WhyEnd;
  verdict: "allowed" | "denied" | "one-way";
}

/** WhyEnd is one end of a question. */
export interface WhyEnd {
  address: string;
  endpoint?: string;
  host?: string;
  name?: string;
  port?: string;
}

/** WhyLeg is one direction of a question. */
export interface WhyLeg {
  allowed: boolean;
  by?: Object[];
  nearest?: NearestRule[];
  port?: string;
  reason: string;
  rest?: WhyLeg;
  trace: TraceAnswer;
}

/** WhyRequest is the question whether a new connection would pass, and why. */
export interface WhyRequest {
  at?: string;
  dropped?: boolean;
  from?: string;
  live?: boolean;
  port?: number;
  protocol?: string;
  reply?: boolean;
  since?: boolean;
  sourcePort?: number;
  to?: string;
  with?: ChangeStep[];
}

/** WhySince is the change since which a question has its verdict, as the server simulates it for a new connection: those of the past are not recorded. */
export interface WhySince {
  back: string;
  before?: "allowed" | "denied" | "one-way";
  change?: Revision;
  end?: "begins" | "gap" | "restored" | "limit";
  fault?: string;
  gap?: Gap;
  looked: number;
  verdict: "allowed" | "denied" | "one-way";
}

/** WorkloadAnswer is the answer of a temporary workload, or the reason why there is none. */
export interface WorkloadAnswer {
  error?: string;
  ipv6?: boolean;
  received?: Record<string, number>;
  results?: ProbeResult[];
}

/** workloadRequest is the body of POST /v1/workloads: what a temporary workload on a port's host should do. */
export interface WorkloadRequest {
  port?: string;
  probes?: Probe[];
  remove?: boolean;
}
