"""A method from outside cosda: `my-method`, the package beside this file, on the embedded digits.

It shows that an installed package adds a method by name, with settings of its own, to Python and the command line.

    pip install cosda ./my-method
    python own_method.py        # writes runs/; again: the same lines, at once
    cosda run digits --domains print,outline --method sharpen --set temperature=0.25        # the same from the shell
"""

import sys

import cosda

if "sharpen" not in cosda.METHODS:
    sys.exit("This example needs the package beside it: pip install ./my-method")

for method, settings in (("aad", {}), ("sharpen", {"temperature": 0.25})):
    run = cosda.run_chain("digits", method, domains=["print", "outline"], carry="bank", epochs=3, settings=settings)
    before, after = run.matrix()  # the accuracies on both domains before and after the stage
    for place, domain in enumerate(("print", "outline")):
        print(f"{domain}, {method}: {before[place]:.1%} before, {after[place]:.1%} after")
