"""The network as an online learner: show it a thing once, with a label of your own, and it knows it the next time.

Examples:
    >>> import mann
    >>> learner = mann.OneShotLearner.from_pretrained()
    >>> ankhs, bells = mann.Glyphs(classes=3).load().images[1:]
    >>> learner.learn_one(ankhs[0], "ankh")
    >>> learner.learn_one(bells[0], "bell")
    >>> learner.predict_one(ankhs[1])
    'ankh'
"""

from mann.online.answers import Label as Label
from mann.online.answers import Look as Look
from mann.online.answers import explain_letters as explain_letters
from mann.online.examples import Example as Example
from mann.online.examples import Keep as Keep
from mann.online.examples import Picture as Picture
from mann.online.examples import Prepared as Prepared
from mann.online.examples import prepare_picture as prepare_picture
from mann.online.functions import Estimate as Estimate
from mann.online.functions import FunctionLearner as FunctionLearner
from mann.online.learner import OneShotLearner as OneShotLearner
