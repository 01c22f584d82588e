import { render } from "preact";
import { useEffect, useErrorBoundary, useState } from "preact/hooks";
import { ApiError, call, type Session } from "./api";
import { away } from "./live";
import { Login } from "./login";
import { Ask } from "./pages/ask";
import { Changes } from "./pages/changes";
import { Drops } from "./pages/drops";
import { Flows } from "./pages/flows";
import { Hosts } from "./pages/hosts";
import { GroupPage, HostPage, NetworkPage, OwnPorts, PortPage, RouterPage } from "./pages/objects";
import { Overview } from "./pages/overview";
import { Reach } from "./pages/reach";
import { Topology } from "./pages/topology";
import { Empty, Failure, Page, State } from "./parts";
import { address, Link } from "./router";
import { Search } from "./search";
import { resume, session } from "./session";

const sections = [
  { path: "/", name: "Overview" },
  { path: "/ask", name: "Ask" },
  { path: "/reach", name: "Reach" },
  { path: "/topology", name: "Topology" },
  { path: "/changes", name: "Changes" },
  { path: "/flows", name: "Flows" },
  { path: "/drops", name: "Drops" },
  { path: "/hosts", name: "Hosts" },
];

/** ownSections are those of users who are no administrators. */
const ownSections = [
  { path: "/", name: "Ports" },
  { path: "/ask", name: "Ask" },
  { path: "/changes", name: "Changes" },
];

function Shown({ path, who }: { path: string; who: Session }) {
  const [crash, again] = useErrorBoundary();
  if (crash) {
    return (
      <Page title="Error">
        <Failure error={new ApiError(0, `The page does not understand the server's answer: ${(crash as Error).message}. Reload it: the server may be of another version.`)} again={again} />
      </Page>
    );
  }
  const [, section, part] = path.split("/");
  const id = part && decodeURIComponent(part);
  if (!who.admin && !who.project) {
    return (
      <Page title="No project">
        <Empty>
          <p>You are logged in as {who.user}, without a project. The console shows members and readers of a project its ports, and users with the role <code>admin</code> everything.</p>
          <p>An administrator gives a role with <code>openstack role add</code>. A project is named at the log-in, unless the user has a default project.</p>
        </Empty>
      </Page>
    );
  }
  switch (section) {
    case "":
      return who.admin ? <Overview /> : <OwnPorts />;
    case "ask":
      return <Ask />;
    case "ports":
      return <PortPage id={id} />;
    case "changes":
      return <Changes />;
  }
  if (!who.admin) {
    return (
      <Page title="For operators">
        <Empty>
          <p>This page is for users with the role <code>admin</code>.</p>
          <p><Link to="/">Your ports</Link></p>
        </Empty>
      </Page>
    );
  }
  switch (section) {
    case "reach":
      return <Reach />;
    case "flows":
      return <Flows />;
    case "drops":
      return <Drops />;
    case "topology":
      return <Topology />;
    case "hosts":
      return id ? <HostPage id={id} /> : <Hosts />;
    case "networks":
      return <NetworkPage id={id} />;
    case "routers":
      return <RouterPage id={id} />;
    case "groups":
      return <GroupPage id={id} />;
  }
  return (
    <Page title="No such page">
      <Empty>There is no page at this address. <Link to="/">Overview</Link></Empty>
    </Page>
  );
}

function Header({ who }: { who: Session }) {
  const path = address.value.pathname;
  const logOut = async () => {
    try {
      await call("DELETE", "/v1/session");
    } finally {
      session.value = { ended: false };
    }
  };
  return (
    <header>
      <a class="skip" href="#main">Skip to the content</a>
      <Link to="/" class="brand">
        <img src="/assets/icon.svg" alt="" width="24" height="24" />
        Heddle
      </Link>
      <nav aria-label="Pages">
        {(who.admin ? sections : who.project ? ownSections : []).map((s) => (
          <Link key={s.path} to={s.path} aria-current={(s.path === "/" ? path === "/" : path.startsWith(s.path)) ? "page" : undefined}>
            {s.name}
          </Link>
        ))}
      </nav>
      {who.admin && <Search />}
      <div class="tools">
        <Theme />
        <span class="who" title={`project ${who.project || "none"}`}>{who.user}</span>
        <button type="button" class="small" onClick={logOut}>Log out</button>
      </div>
    </header>
  );
}

const themes = { auto: "Auto", light: "Light", dark: "Dark" };

function Theme() {
  const [theme, setTheme] = useState(localStorage.getItem("theme") ?? "auto");
  const choose = (to: string) => {
    setTheme(to);
    if (to === "auto") {
      localStorage.removeItem("theme");
      delete document.documentElement.dataset.theme;
    } else {
      localStorage.setItem("theme", to);
      document.documentElement.dataset.theme = to;
    }
  };
  return (
    <select aria-label="Theme" class="small" value={theme} onChange={(e) => choose(e.currentTarget.value)}>
      {Object.entries(themes).map(([value, name]) => (
        <option key={value} value={value}>{name}</option>
      ))}
    </select>
  );
}

function App() {
  const [error, setError] = useState<ApiError>();
  const start = () => {
    setError(undefined);
    resume().catch(setError);
  };
  useEffect(start, []);
  const path = address.value.pathname;
  // Whoever reads by ear is taken to the new page, as after a page load.
  useEffect(() => {
    const heading = document.querySelector("h1")?.textContent;
    document.title = heading ? `${heading} · Heddle` : "Heddle";
  });
  useEffect(() => document.getElementById("main")?.focus({ preventScroll: true }), [path]);

  const who = session.value;
  if (error) return <main class="login"><Failure error={error} again={start} /></main>;
  if (!who) return <p class="quiet" role="status">Loading…</p>;
  if ("ended" in who) return <Login ended={who.ended} />;
  return (
    <>
      <Header who={who} />
      {away.value && (
        <p class="away" role="status">
          <State mood="warn">Changes do not arrive at present</State> What is shown may be old: the server is asked again every few seconds.
        </p>
      )}
      <Shown key={path} path={path} who={who} />
    </>
  );
}

render(<App />, document.getElementById("app")!);
