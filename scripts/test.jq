# What scripts/test prints, from the events of `go test -json` (go doc test2json, go help buildjson).

# A package's closing line, which belongs to no test.
def closing: select(.Output and .Test == null) | .Output | select(test("^(ok|FAIL|\\?)\\s.*\\S"));

# One event at a time, as they come.
def live: closing, (select(.Action == "build-output") | .Output);

# The outputs of events in an array as lines cut to 300 characters, without go test's own; the first and last 60 of many.
def said: map(.Output // empty) | add // "" | split("\n")
  | map(select(test("^(=== |PASS$|FAIL\\b|ok\\b|exit status|$)") | not) | if length > 300 then .[:300] + "…" else . end)
  | if length > 120 then .[:60] + ["… \(length - 120) lines …"] + .[-60:] else . end;

# The first two lines with which a test's own errors begin, else the first that tells of a panic or a race.
def complaints: map(select(test("^\\s+[a-z0-9_]+\\.go:[0-9]+: \\S"))) as $errors
  | if $errors != [] then $errors[:2] else map(select(test("^panic: |DATA RACE")))[:1] end;

# Failed, or cut off by a panic or the timeout.
def failed: any(.[]; .Action == "fail") or all(.[]; .Action | IN("pass", "skip") | not);

# All events in an array: what each failed test said, subtests before what holds them, which often says only how its lab
# looked; the closing lines; the failed tests' names with their first errors.
def failures: . as $all
  | [ map(select(.Package)) | group_by([.Package, .Test])[] | select(failed)
      | {package: .[0].Package, test: .[0].Test, said: said, build: (map(.FailedBuild // empty) | first)}
      | if .build then .build as $b | .test = "(does not build)" | .said = ($all | map(select(.ImportPath == $b)) | said) else . end
      # A package fails with its tests; it counts by itself when it said something outside of them.
      | select(.test or .said != []) ] as $failed
  | ($failed | sort_by(-(.test // "" | split("/") | length))[] | select(.said != []) | "", "in \(.package) \(.test // "")", .said[]),
    "", ($all[] | closing | rtrimstr("\n")), "",
    ($failed[] | "failed: \(.package) \(.test // "(outside its tests)")", (.said | complaints[]));
