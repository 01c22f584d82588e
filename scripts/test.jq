# What scripts/test prints, from the events of `go test -json` (go doc test2json).

# A package's closing line, which belongs to no test.
def closing: select(.Output and .Test == null) | .Output | select(test("^(ok|FAIL|\\?)\\s.*\\S"));

# One event at a time, as they come.
def live: closing, (select(.Action == "build-output") | .Output);

# Of one text: its lines cut to 300 characters, without go test's own, the first and last 60 of many.
def shorten: split("\n")
  | map(select(test("^(=== |PASS$|FAIL\\b|ok\\b|exit status|$)") | not) | if length > 300 then .[:300] + "…" else . end)
  | if length > 120 then .[:60] + ["… \(length - 120) lines …"] + .[-60:] else . end;

# Failed, or cut off by a panic or the timeout.
def failed: any(.[]; .Action == "fail") or all(.[]; .Action | IN("pass", "skip") | not);

# All events in an array: what each failed test said, the closing lines, the failed tests' names.
def failures:
  [ map(select(.Package)) | group_by([.Package, .Test])[] | select(failed)
    | {name: "\(.[0].Package) \(.[0].Test // "(outside its tests)")", test: .[0].Test, said: (map(.Output // empty) | add // "" | shorten)}
    | select(.test or .said != []) ] as $failed
  | ($failed[] | select(.said != []) | "", "in " + .name, .said[]),
    "", (.[] | closing | rtrimstr("\n")), "",
    ($failed[] | "failed: " + .name);
