#!/usr/bin/env node
// The command `anneal` of the npm package: runs the binary of this platform's package, with the same
// arguments, streams and exit code. scripts/dist_packages.py puts this file into the package.
"use strict";

const { spawn } = require("node:child_process");

const platformPackage = `@anneal-server/${process.platform}-${process.arch}`;
let binary;
try {
  binary = require.resolve(`${platformPackage}/bin/anneal`);
} catch {
  console.error(
    `anneal: the package ${platformPackage} is not installed. Either there is none for this platform, ` +
      "or npm left out optional dependencies (--omit=optional).",
  );
  process.exit(1);
}

const child = spawn(binary, process.argv.slice(2), { stdio: "inherit" });
child.on("error", (error) => {
  console.error(`anneal: cannot run ${binary}: ${error.message}`);
  process.exit(1);
});
process.on("SIGTERM", () => child.kill("SIGTERM"));
// A terminal sends these to the binary too. A second one would end the binary at once.
process.on("SIGINT", () => {});
process.on("SIGHUP", () => {});
child.on("exit", (code, signal) => {
  if (signal === null) process.exit(code);
  process.removeAllListeners(signal);
  process.kill(process.pid, signal);
});
