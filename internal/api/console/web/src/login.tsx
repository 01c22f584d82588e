import { useState } from "preact/hooks";
import { ApiError, call, type Session } from "./api";
import { session } from "./session";

export function Login({ ended }: { ended: boolean }) {
  const [error, setError] = useState("");
  const [busy, setBusy] = useState(false);
  const submit = async (e: SubmitEvent) => {
    e.preventDefault();
    const form = e.currentTarget as HTMLFormElement;
    const field = (name: string) => (form.elements.namedItem(name) as HTMLInputElement).value;
    setBusy(true);
    setError("");
    try {
      session.value = await call<Session>("POST", "/v1/session", {
        user: field("user").trim(),
        password: field("password"),
        project: field("project").trim(),
        user_domain: field("domain").trim(),
        project_domain: field("domain").trim(),
      });
    } catch (e) {
      setBusy(false);
      setError(e instanceof ApiError && e.status === 401 ? "No user has this name and password, or the user has no role on the project." : String((e as Error).message));
    }
  };
  return (
    <main id="main" class="login" tabIndex={-1}>
      <form onSubmit={submit} aria-describedby="problem">
        <h1>Log in to Heddle</h1>
        {ended && <p class="notice warn" role="status">Your session has ended. Log in to go on where you were.</p>}
        <label>
          User
          <input name="user" autoComplete="username" autoCapitalize="none" spellcheck={false} required autofocus />
        </label>
        <label>
          Password
          <input name="password" type="password" autoComplete="current-password" required />
        </label>
        <details>
          <summary>Project and domain</summary>
          <label>
            Project
            <input name="project" autoCapitalize="none" spellcheck={false} placeholder="your default project" />
          </label>
          <label>
            Domain
            <input name="domain" autoCapitalize="none" spellcheck={false} placeholder="Default" />
          </label>
        </details>
        <p id="problem" role="alert" class={error ? "notice bad" : ""}>{error}</p>
        <button type="submit" class="primary" disabled={busy}>{busy ? "Logging in…" : "Log in"}</button>
        <p class="quiet">The first administrator's name and password are in <code>clouds.yaml</code> in the server's data directory.</p>
      </form>
    </main>
  );
}
