import assert from "node:assert/strict";
import { test } from "node:test";
import { FakeKernel } from "#kernel/fake";
import { chooseDriver, type TUNNEL_DRIVERS } from "./choose.ts";

const NO_FOU = ["fou", "ipip", "ip6tnl"] as const;

function choose(
  lacks: ConstructorParameters<typeof FakeKernel>[0],
  asked: (typeof TUNNEL_DRIVERS)[number],
  families = [4, 6] as readonly (4 | 6)[],
) {
  const { driver, lacking } = chooseDriver(new FakeKernel(lacks), asked, families);
  return [driver.name, ...lacking].join(" ");
}

test("chooseDriver: auto is FoU where the kernel has all of it for the families, else VXLAN, with what is lacking", () => {
  assert.equal(choose({}, "auto"), "fou");
  assert.equal(choose({ lacks: NO_FOU }, "auto"), "vxlan fou ipip ip6tnl");
  assert.equal(choose({ lacks: ["ip6tnl"] }, "auto"), "vxlan ip6tnl");
  assert.equal(choose({ lacks: ["ip6tnl"] }, "auto", [4]), "fou");
  assert.equal(choose({ lacks: NO_FOU }, "vxlan"), "vxlan");
  assert.equal(choose({}, "fou"), "fou");
  // Its links are made only with the second module, though the kernel tells of FoU.
  assert.equal(choose({ lacks: ["fou6"] }, "auto"), "vxlan fou6");
  assert.equal(choose({ lacks: ["fou6"] }, "auto", [4]), "fou");
});

test("chooseDriver: what is lacking is one line with the flag and the fix", () => {
  const line = (text: string) => ({
    name: "TunnelError",
    code: "lacking",
    message: new RegExp(`^[^\\n]*${text}[^\\n]*$`),
  });
  assert.throws(
    () => choose({ lacks: NO_FOU }, "fou"),
    line("--tunnel-driver=fou: this kernel has no fou, no ipip, no ip6tnl: .*=vxlan or auto"),
  );
  assert.throws(() => choose({ lacks: ["fou6"] }, "fou"), line("--tunnel-driver=fou: this kernel has no fou6: .*"));
  assert.throws(() => choose({ lacks: ["vxlan"] }, "vxlan"), line("--tunnel-driver=vxlan: this kernel has no vxlan"));
  assert.throws(
    () => choose({ lacks: ["vxlan", "ipip"] }, "auto"),
    line("--tunnel-driver=auto: this kernel has no vxlan, no ipip"),
  );
});
