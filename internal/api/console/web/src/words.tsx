import type { Name } from "./api";
import { pathOf } from "./parts";
import { Link } from "./router";

// Ids that stand by themselves: those within the name of a chain are a part of it.
const uuid = /(?<!\w)([0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})(?!\w)/;

/** Words is a text whose ids are links to what they stand for, by name. */
export function Words({ text, names }: { text: string; names: Record<string, Name> }) {
  const parts = text.split(uuid);
  return (
    <>
      {parts.map((part, i) => {
        if (i % 2 === 0) return part;
        const name = names[part];
        if (!name) return <code key={i}>{part}</code>;
        // A text may say the kind itself: "arrives at port ID".
        const said = parts[i - 1].trimEnd().endsWith(name.kind);
        const label = (said && name.name) || [name.kind, name.name].filter(Boolean).join(" ");
        const path = pathOf(name.kind, part);
        return path ? <Link key={i} to={path}>{label}</Link> : <span key={i} title={part}>{label}</span>;
      })}
    </>
  );
}
