(* Errors carried through functions and products, and the tactics by which a circuit is seen to be its formula. *)
Require Import Reals Lra Psatz Coquelicot.Coquelicot Interval.Tactic.
Require Transformula.Typed.
Open Scope R_scope.

Lemma two_sided x e : Rabs x <= e -> -e <= x <= e.
Proof. apply Rabs_le_between. Qed.

(* An argument that is off: the mean value theorem. *)
Lemma moved (f : R -> R) lo hi L :
  (forall u, lo <= u <= hi -> exists l, is_derive f u l /\ Rabs l <= L) ->
  forall a b, lo <= a <= hi -> lo <= b <= hi -> Rabs (f a - f b) <= L * Rabs (a - b).
Proof.
  intros H a b Ha Hb.
  assert (I : forall x, Rmin b a <= x <= Rmax b a -> lo <= x <= hi).
  { intros x. unfold Rmin, Rmax. destruct (Rle_dec b a); lra. }
  destruct (MVT_gen f b a (Derive f)) as [c [Hc E]].
  - intros x Hx. destruct (H x) as [l [Hl _]]; [apply I; lra|]. rewrite (is_derive_unique _ _ _ Hl). exact Hl.
  - intros x Hx. destruct (H x (I x Hx)) as [l [Hl _]]. apply continuity_pt_filterlim.
    apply (ex_derive_continuous f). now exists l.
  - rewrite E, Rabs_mult. destruct (H c (I c Hc)) as [l [Hl B]]. rewrite (is_derive_unique _ _ _ Hl).
    apply Rmult_le_compat_r; [apply Rabs_pos | exact B].
Qed.

Lemma product_error a b a' b' ea eb A B : -ea <= a' - a <= ea -> -eb <= b' - b <= eb -> Rabs a <= A -> Rabs b <= B ->
  -(A * eb + B * ea + ea * eb) <= a' * b' - a * b <= A * eb + B * ea + ea * eb.
Proof.
  intros Ha Hb HA HB. replace (a' * b' - a * b) with (a * (b' - b) + b * (a' - a) + (a' - a) * (b' - b)) by ring.
  assert (Ha' : Rabs (a' - a) <= ea) by (apply Rabs_le; lra). assert (Hb' : Rabs (b' - b) <= eb) by (apply Rabs_le; lra).
  apply Rabs_le_between. eapply Rle_trans; [apply Rabs_triang|]. apply Rplus_le_compat.
  - eapply Rle_trans; [apply Rabs_triang|]. rewrite !Rabs_mult. apply Rplus_le_compat; apply Rmult_le_compat; auto using Rabs_pos.
  - rewrite Rabs_mult. apply Rmult_le_compat; auto using Rabs_pos.
Qed.
Lemma relu_moved a b e : -e <= a - b <= e -> -e <= Rmax 0 a - Rmax 0 b <= e.
Proof. unfold Rmax. destruct (Rle_dec 0 a), (Rle_dec 0 b); lra. Qed.
Lemma relu_range a lo hi : lo <= a <= hi -> 0 <= Rmax 0 a <= Rmax 0 hi.
Proof. unfold Rmax. destruct (Rle_dec 0 a), (Rle_dec 0 hi); lra. Qed.

(* Interval knows absolute values, but neither the larger nor the smaller of two numbers. *)
Lemma max_by_abs a b : Rmax a b = (a + b + Rabs (a - b)) / 2.
Proof. unfold Rmax, Rabs. destruct (Rle_dec a b), (Rcase_abs (a - b)); lra. Qed.
Lemma min_by_abs a b : Rmin a b = (a + b - Rabs (a - b)) / 2.
Proof. unfold Rmin, Rabs. destruct (Rle_dec a b), (Rcase_abs (a - b)); lra. Qed.
Ltac kinks := rewrite ?max_by_abs, ?min_by_abs.

(* Equal functions of equal arguments. *)
Ltac nonzero := repeat match goal with |- _ /\ _ => split end;
  first [ exact PI_neq0 | lra | (kinks; apply Rgt_not_eq, Rlt_gt; interval) | (kinks; apply Rlt_not_eq; interval) | nra | idtac ].
(* Equal terms: by field, or with the squares of sines in those of cosines, of one angle or two. *)
Lemma sine_square t : sin t * sin t = 1 - cos t * cos t.
Proof. pose proof (sin2_cos2 t). unfold Rsqr in *. lra. Qed.
Ltac circles := match goal with |- context [sin ?t] => first
  [ solve [field [(sine_square t)]; nonzero]
  | match goal with |- context [sin ?u] => tryif constr_eq t u then fail else solve [field [(sine_square t) (sine_square u)]; nonzero] end ] end.
Ltac equal_terms := first [solve [field; nonzero] | circles].
Ltac positive := first [lra | kinks; interval].
Ltac same_arguments f := repeat match goal with
  | |- context [f ?a] => match goal with |- context [f ?b] =>
      tryif constr_eq a b then fail else (replace (f a) with (f b) by (f_equal; equal_terms)) end end.
Ltac same_angles := repeat match goal with |- context [sin ?a] => match goal with |- context [cos ?b] =>
  tryif constr_eq a b then fail else (replace (sin a) with (sin b) by (f_equal; field; nonzero)) end end.
Ltac squares_of e := match goal with |- 0 <= ?x => replace x with e by (same_arguments sin; same_arguments cos; same_angles; equal_terms) end;
  repeat apply Rplus_le_le_0_compat; first [apply pow2_ge_0 | nra].
Lemma exp_minus_ln v : 0 < v -> exp (-1 * ln v) = / v.
Proof. intros H. replace (-1 * ln v) with (- ln v) by ring. now rewrite exp_Ropp, exp_ln. Qed.
Lemma tanh_exp v : tanh v = 1 - 2 / (exp (2 * v) + 1).
Proof.
  unfold tanh, sinh, cosh. replace (2 * v) with (v + v) by ring. rewrite exp_plus, exp_Ropp.
  pose proof (exp_pos v). field. split; nra.
Qed.
Lemma asin_atan_of v : -1 < v < 1 -> asin v = atan (v / sqrt (1 - v * v)).
Proof. intros H. rewrite asin_atan by exact H. unfold Rsqr. reflexivity. Qed.
Lemma acos_atan_of v : -1 < v < 1 -> acos v = PI / 2 - atan (v / sqrt (1 - v * v)).
Proof. intros H. rewrite acos_asin by lra. now rewrite asin_atan_of. Qed.
Lemma ln_quotient a b : 0 < a -> 0 < b -> ln (a / b) = ln a - ln b.
Proof. intros. unfold Rdiv. rewrite ln_mult, ln_Rinv; auto using Rinv_0_lt_compat. Qed.
Ltac exponentials := repeat match goal with |- context [exp ?a] => match a with context [ln ?v] =>
  progress (rewrite ?exp_plus; rewrite ?exp_minus_ln by positive; rewrite ?exp_ln by positive) end end.
Ltac cases_of_relu := unfold Rmax, Rmin, Rabs;
  repeat match goal with  (* the innermost first *)
  | |- context [Rle_dec ?a ?b] => lazymatch constr:((a, b)) with context [Rle_dec] => fail
      | context [Rlt_dec] => fail | context [Rcase_abs] => fail | _ => destruct (Rle_dec a b) end
  | |- context [Rlt_dec ?a ?b] => lazymatch constr:((a, b)) with context [Rle_dec] => fail | context [Rlt_dec] => fail
      | context [Rcase_abs] => fail | _ => destruct (Rlt_dec a b) end
  | |- context [Rcase_abs ?a] => destruct (Rcase_abs a) end.
Ltac at_seams := repeat match goal with
  | |- context [exp ?a] => replace (exp a) with 1 by (replace a with 0 by lra; now rewrite exp_0)
  | |- context [sin ?a] => replace (sin a) with 0 by (replace a with 0 by lra; now rewrite sin_0)
  | |- context [cos ?a] => replace (cos a) with 1 by (replace a with 0 by lra; now rewrite cos_0)
  | |- context [ln ?a] => replace (ln a) with 0 by (replace a with 1 by lra; now rewrite ln_1)
  | |- context [sqrt ?a] => replace (sqrt a) with 0 by (replace a with 0 by lra; now rewrite sqrt_0)
  | |- context [atan ?a] => replace (atan a) with 0 by (replace a with 0 by lra; now rewrite atan_0) end.
Ltac arguments := same_arguments exp; same_arguments sin; same_arguments cos; same_angles; same_arguments ln; same_arguments sqrt;
  same_arguments atan.
Ltac same_terms := first [lra | nra | solve [field; nonzero]].
Ltac meaning := unfold Rpower; rewrite ?tanh_exp; rewrite ?asin_atan_of, ?acos_atan_of by (split; positive); unfold sinh, cosh; rewrite ?ln_quotient by positive; exponentials; arguments;
  first [ lra | equal_terms | cases_of_relu; first [same_terms | arguments; same_terms | at_seams; arguments; same_terms] ].
Ltac slope_domain u := repeat split; first [ lra | interval with (i_bisect u) | apply Rgt_not_eq, Rlt_gt; interval with (i_bisect u)
  | apply Rlt_not_eq; interval with (i_bisect u) | idtac ].
Ltac condition := kinks; first [ exact I | lra | interval | apply Rgt_not_eq, Rlt_gt; interval | apply Rlt_not_eq; interval | nra ].
Ltac conditions := rewrite ?asin_atan_of, ?acos_atan_of by (split; positive); repeat match goal with
  | |- _ /\ _ => split
  | |- context [Rlt_dec ?a ?b] => destruct (Rlt_dec a b) as [?|?%Rnot_lt_le]
  | |- context [Rle_dec ?a ?b] => destruct (Rle_dec a b) as [?|?%Rnot_le_lt] end.
(* A hypothesis of Model.v on a variable, in plain terms: the ends of its interval are defined, and in order. *)
Ltac open_box J := unfold Typed.inside in J;
  cbv -[Rplus Rminus Rmult Rdiv Ropp Rinv IZR pow Rpower sqrt exp ln sin cos tan atan asin acos sinh cosh tanh Rabs Rmin Rmax PI Rle Rlt not Rlt_dec Rle_dec] in J;
  lazymatch type of J with ?ends -> _ => specialize (J ltac:(conditions; condition)) end.
