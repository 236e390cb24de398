import assert from "node:assert/strict";
import { test } from "node:test";
import { clusterIdentity } from "./cluster-id.ts";

const UID = "0b6f2a9e-1111-4222-8333-444444444444";

test("clusterIdentity: the given id, else that of the claims, else the uid of kube-system", () => {
  const rows: readonly (readonly [
    claim: string,
    input: { given?: string; uid?: string; claimed?: readonly string[] },
    wanted: readonly [id: string, isUid: boolean, note: RegExp | undefined] | undefined,
  ])[] = [
    ["a new cluster", { uid: UID }, [UID, true, undefined]],
    ["its claims have the uid", { uid: UID, claimed: [UID, UID] }, [UID, true, undefined]],
    ["a given id", { given: "east", uid: UID, claimed: ["east"] }, ["east", false, undefined]],
    ["the uid is given", { given: UID, uid: UID }, [UID, true, undefined]],
    ["a claim that came from elsewhere", { uid: UID, claimed: [UID, "other", UID] }, [UID, true, undefined]],
    [
      "after an upgrade from --cluster-id=cluster-1 the claims' id is kept",
      { uid: UID, claimed: ["cluster-1", UID, "cluster-1"] },
      ["cluster-1", false, /^NicClaims have the cluster id cluster-1 \(2\), which is kept; .*--cluster-id=0b6f2a9e/],
    ],
    [
      "of several ids the one of most claims",
      { uid: UID, claimed: ["b", "a", "b"] },
      ["b", false, /id b \(2\), a \(1\), which is kept/],
    ],
    ["on the way to the uid", { given: UID, uid: UID, claimed: ["cluster-1"] }, [UID, true, /cluster-1 \(1\)/]],
    ["nothing is known", {}, undefined],
    ["the namespace cannot be read", { claimed: ["a"] }, ["a", false, /id a \(1\), which is kept$/]],
  ];
  for (const [claim, { given, uid, claimed = [] }, wanted] of rows) {
    const found = clusterIdentity({ given, uid, claimed });
    assert.deepEqual(found && [found.id, found.isUid], wanted?.slice(0, 2), claim);
    if (wanted?.[2] === undefined) assert.equal(found?.note, undefined, claim);
    else assert.match(found?.note ?? "", wanted[2], claim);
  }
});
